"""Recovery: the processes for jobs that came back from a crash, two a worker at most; each is up before a claim.

After a crash every job the worker held comes back, and each process has the size of a worker: one process a job took
all memory of a host. Nor may an attempt be counted while its process starts.
"""

import threading
from collections.abc import Callable
from time import monotonic

from django_delayq.job import Claim
from django_delayq.log import logger
from django_delayq.outcome import Outcome
from django_delayq.pools.children import Children

#: Processes at once, whatever the pool and its size.
MOST = 2
#: Seconds without a recovered job after which the processes end: jobs of one crash come back one after another.
_IDLE = 30.0


class Recovery:
    """Used by any thread, and by the workers of all shards that share a pool."""

    def __init__(self) -> None:
        self._children = Children()
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
