"""Recovery: the child processes for jobs whose last attempt crashed, at most two, each ready before such a claim.

After a crash, every job that the worker held comes back, and each process is as large as a worker. One process a job
would take all memory of a host. No attempt may be counted while its process starts.
"""

import threading
from collections.abc import Callable
from time import monotonic

from django_delayq.job.job import Claim
from django_delayq.job.outcome import Outcome
from django_delayq.logs import logger
from django_delayq.store.claims import ExchangeReply
from django_delayq.task.context import RunLink
from django_delayq.worker.pools.processes import ProcessRunner

#: Processes at once, whatever the pool and its size.
MAX_PROCESSES = 2
#: Seconds without a recovered job after which the processes end: the jobs of one crash come back one after another.
_IDLE_TIMEOUT = 30.0


class RecoveryRunner:
    """The processes of one pool, shared by the workers of all shards that use it. Used by any thread."""

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._processes = ProcessRunner()
        self._lock = threading.Lock()
        #: Processes kept for a claim that may come, or that has come and not ended.
        self._reserved = 0
        self._is_starting = False
        self._used_at = self._clock()

    @property
    def has_free(self) -> bool:
        """Whether a process is ready that nobody has reserved."""
        return self._processes.ready_count > self._reserved

    def reserve(self, *, always: bool = False) -> bool:
        """Reserve a process until `release()`; returns False if none is free.

        With `always`, the reservation is counted even then: for a claim that has arrived, and will be released.
        """
        with self._lock:
            has_free = self.has_free
            self._reserved += has_free or always
            return has_free

    def release(self) -> None:
        """Give up a reservation: no claim came for it, or its claim has ended."""
        with self._lock:
            self._reserved -= 1
            self._used_at = self._clock()

    def start(self, wake: Callable[[], object]) -> None:
        """Start a process unless one is starting, free, or there are enough; `wake` is called once it is ready."""
        with self._lock:
            if self._is_starting or self.has_free or self._processes.count >= MAX_PROCESSES:
                return
            self._is_starting = True
        try:
            threading.Thread(target=self._start, args=(wake,), name="delayq-recovery", daemon=True).start()
        except RuntimeError as error:
            # A job may use up the threads of the process for a moment. A later step calls this again.
            self._is_starting = False
            logger.error("No thread for the process of a recovered job could be started: %s", error)
        except BaseException:
            self._is_starting = False
            raise

    def end_if_idle(self) -> None:
        """End the processes if no recovered job has come for 30 s. Does not wait for them."""
        with self._lock:
            if not (self._reserved or self._is_starting) and self._clock() > self._used_at + _IDLE_TIMEOUT:
                self._processes.end_idle()

    def prepare(self) -> None:
        """Do nothing: `start()` is called when there is a recovered job."""

    def run(self, claim: Claim, begin: Callable[[], bool], link: RunLink | None = None) -> Outcome:
        """Run a recovered job in a process, as `ProcessRunner.run()`."""
        return self._processes.run(claim, begin, link)

    def stop(self, lease: bytes, seconds: float) -> None:
        """Stop a recovered job, as `ProcessRunner.stop()`."""
        self._processes.stop(lease, seconds)

    def end_processes(self) -> None:
        """End the processes, as `ProcessRunner.end_processes()`."""
        self._processes.end_processes()

    def close(self) -> None:
        """Kill all processes: an interrupted job must not continue."""
        self._processes.close()

    def _start(self, wake: Callable[[], object]) -> None:
        try:
            self._processes.add()
        finally:
            self._used_at, self._is_starting = self._clock(), False
            wake()


class RecoveryGate:
    """Decides when one worker may claim recovered jobs of its shard, and reserves a process for the next one.

    `release()` is called in threads of the pool, all else in the worker's own.
    """

    def __init__(self, recovery: RecoveryRunner | None, wake: Callable[[], object]) -> None:
        """Without `recovery` the pool runs no tasks: a recovered job is claimed like any other."""
        self._recovery = recovery
        self._wake = wake
        #: The last exchange left recovered jobs behind.
        self.jobs_left = False
        #: A process is reserved for the claim that the current exchange may bring.
        self._reserved = False

    def poll(self) -> bool:
        """Start or end processes as needed; return whether an exchange would bring a recovered job now."""
        if self._recovery is None:
            return self.jobs_left
        if not self.jobs_left:
            self._recovery.end_if_idle()
        elif not self._recovery.has_free:
            self._recovery.start(self._wake)
        return self.jobs_left and self._recovery.has_free

    def may_claim(self) -> bool:
        """Return whether the next exchange may bring a recovered job: a process is ready, and reserved for it."""
        if self._recovery is None:
            return True
        if not self._reserved:
            self._reserved = self._recovery.reserve()
        return self._reserved

    def cancel_reservation(self) -> None:
        """Let others use the reserved process: an outage may delay the reply for long."""
        if self._reserved and self._recovery:
            self._recovery.release()
        self._reserved = False

    def record_reply(self, reply: ExchangeReply) -> bool:
        """Record what an exchange brought and left behind; returns False if its claim must be released.

        There is no process for the claim if the exchange was sent again unchanged after the reservation was
        cancelled, and others use the process by now.
        """
        brings_one, may_run = any(claim.attempts.crash_suspected for claim in reply.claims), True
        if not brings_one:
            self.cancel_reservation()
        elif self._recovery and not self._reserved:
            may_run = self._recovery.reserve(always=True)
        self._reserved = False
        if reply.claimed:
            self.jobs_left = reply.recovered or not may_run
        return may_run

    def release(self, claim: Claim) -> None:
        """Give up the process of a claim that has ended, if it is a recovered job."""
        if self._recovery and claim.attempts.crash_suspected:
            self._recovery.release()
