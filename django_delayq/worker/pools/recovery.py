"""Recovery: the processes for jobs that came back from a crash, two a worker at most; each is up before a claim.

After a crash every job the worker held comes back, and each process has the size of a worker: one process a job took
all memory of a host. Nor may an attempt be counted while its process starts.
"""

import threading
from collections.abc import Callable
from time import monotonic

from django_delayq.job.job import Claim
from django_delayq.job.outcome import Outcome
from django_delayq.log import logger
from django_delayq.store.claims import ExchangeReply
from django_delayq.worker.pools.processes import ProcessRunner

#: Processes at once, whatever the pool and its size.
MOST = 2
#: Seconds without a recovered job after which the processes end: jobs of one crash come back one after another.
_IDLE = 30.0


class RecoveryRunner:
    """Used by any thread, and by the workers of all shards that share a pool."""

    def __init__(self) -> None:
        self._children = ProcessRunner()
        self._lock = threading.Lock()
        #: Processes kept for a claim that may come, or that has come and not ended.
        self._reserved = 0
        self._starts = False
        self._used_at = monotonic()

    @property
    def free(self) -> bool:
        """Whether a process is up that nobody has reserved."""
        return self._children.up > self._reserved

    def reserve(self, *, came: bool = False) -> bool:
        """Keep a process for a claim that may come, until `release()`; false if none is free.

        For one that `came` all the same `release()` is called too, as for any other, once it is given back.
        """
        with self._lock:
            free = self.free
            self._reserved += free or came
            return free

    def release(self) -> None:
        """Let go of a reserved process: no claim came for it, or it has ended."""
        with self._lock:
            self._reserved -= 1
            self._used_at = monotonic()

    def start(self, wake: Callable[[], object]) -> None:
        """Start a process, unless one starts already or there are enough; `wake` is called once it is up."""
        with self._lock:
            if self._starts or self.free or self._children.count >= MOST:
                return
            self._starts = True
        try:
            threading.Thread(target=self._start, args=(wake,), name="delayq-recovery", daemon=True).start()
        except RuntimeError as error:
            # A job may use up the threads of the process for a moment. A later step calls this again.
            self._starts = False
            logger.error("No thread for the process of a recovered job could be started: %s", error)
        except BaseException:
            self._starts = False
            raise

    def rest(self) -> None:
        """End the processes if no recovered job has come for a while."""
        with self._lock:
            if not (self._reserved or self._starts) and monotonic() > self._used_at + _IDLE:
                self._children.end_idle()

    def prepare(self) -> None:
        """Do nothing: `start()` is called when there is a job."""

    def run(self, claim: Claim, begin: Callable[[], bool]) -> Outcome:
        """Run a recovered job in a process of its own."""
        return self._children.run(claim, begin)

    def close(self) -> None:
        """Kill what runs: a job that is given back must not run on."""
        self._children.close()

    def _start(self, wake: Callable[[], object]) -> None:
        try:
            self._children.add()
        finally:
            self._used_at, self._starts = monotonic(), False
            wake()


class RecoveryGate:
    """What one worker knows of the recovered jobs of its shard."""

    def __init__(self, recovery: RecoveryRunner | None, wake: Callable[[], object]) -> None:
        """Without `recovery` the pool runs no task: a recovered job is claimed like any other."""
        self._recovery = recovery
        self._wake = wake
        #: The last exchange left some behind.
        self.left = False
        #: A process is reserved for what the exchange under way brings.
        self._reserved = False

    @property
    def due(self) -> bool:
        """Whether an exchange would bring one now; where a process is missing, one is started for it."""
        if self._recovery is None:
            return self.left
        if not self.left:
            self._recovery.rest()
        elif not self._recovery.free:
            self._recovery.start(self._wake)
        return self.left and self._recovery.free

    def may_claim(self) -> bool:
        """Return whether the next exchange may bring one: a process is up, and kept for it."""
        if self._recovery is None:
            return True
        if not self._reserved:
            self._reserved = self._recovery.reserve()
        return self._reserved

    def unanswered(self) -> None:
        """Let others have the process that was kept: the answer may take as long as an outage."""
        if self._reserved and self._recovery:
            self._recovery.release()
        self._reserved = False

    def record_reply(self, answer: ExchangeReply) -> bool:
        """Take down what an exchange brought and left behind; false if that must be given back: it has no process.

        An exchange is sent again word for word, also where others have the process that was kept for it.
        """
        came, runs = any(claim.attempts.crash_suspected for claim in answer.claims), True
        if not came:
            self.unanswered()
        elif self._recovery and not self._reserved:
            runs = self._recovery.reserve(came=True)
        self._reserved = False
        if answer.claimed:
            self.left = answer.recovered or not runs
        return runs

    def ended(self, claim: Claim) -> None:
        """Let go of a claim's process."""
        if self._recovery and claim.attempts.crash_suspected:
            self._recovery.release()
