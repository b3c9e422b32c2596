"""Processes: a `ClaimRunner` with a child process for each thread, replaced when it dies or reaches its limits.

A task that kills its process costs one attempt of one job, and a hard limit is enforced by killing the process.
"""

import multiprocessing
import threading
from collections.abc import Callable
from dataclasses import replace
from time import monotonic

from django_delayq.job.job import Claim
from django_delayq.job.outcome import UNSTARTED, WORKER_STOPPED, Outcome, OutcomeKind
from django_delayq.logs import logger
from django_delayq.processes.backoff import backoff
from django_delayq.task.context import RunLink
from django_delayq.worker.pools.child import END_TIMEOUT, START_TIMEOUT, ChildProcess

#: Seconds to wait after a child that did not start: the first time, and at most.
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 30.0
# A fork of this process, which has threads, may hold the lock of another thread forever.
_context = multiprocessing.get_context("spawn")


class ProcessRunner:
    """Run claims in as many processes as there are callers at once; idle processes are used again."""

    def __init__(self, *, max_jobs: int | None = None, max_memory: int | None = None) -> None:
        """Replace a child after `max_jobs` claims, or if it has more than `max_memory` bytes in RAM after one."""
        self._max_jobs, self._max_memory = max_jobs, max_memory
        self._lock = threading.Lock()
        self._idle: list[ChildProcess] = []
        self._busy: set[ChildProcess] = set()
        #: Processes that run their exit handlers.
        self._ending: list[ChildProcess] = []
        #: Children in a row that did not start.
        self._failures = 0
        self._closed = threading.Event()

    @property
    def count(self) -> int:
        """Processes that run a claim, are idle or are starting; not those that run their exit handlers."""
        with self._lock:
            # While no claim comes, nobody else finds those that died idle, and no claim comes while they count.
            for child in [child for child in self._idle if not child.alive]:
                self._idle.remove(child)
                child.kill()
            return len(self._busy) + len(self._idle)

    @property
    def ready_count(self) -> int:
        """Processes that run a claim, or could."""
        with self._lock:
            return sum(child.alive for child in self._idle) + sum(child.ready for child in self._busy)

    def run(self, claim: Claim, begin: Callable[[], bool], link: RunLink | None = None) -> Outcome:
        """Run a claim to its end, the end of its process, or its hard limit; unstarted if no process starts.

        `begin` is called once a process is ready: while it starts, the lease may be lost or the pool be closed.
        """
        try:
            child = self._take()
        except OSError as error:
            return Outcome(kind=OutcomeKind.FAILED, error=f"No process could be started for the task: {error}")
        if child is None:
            return UNSTARTED
        try:
            # Before it begins: from then on it can be stopped.
            child.lease = claim.lease
            if not self._wait_ready(child) or not begin():
                return UNSTARTED
            outcome = child.run(claim, link)
        finally:
            child.release()
            self._put_back(child)
        if outcome.kind is OutcomeKind.CRASHED and self._closed.is_set():
            return replace(outcome, kind=OutcomeKind.INTERRUPTED, error=WORKER_STOPPED)
        return outcome

    def stop(self, lease: bytes, seconds: float) -> None:
        """Show the code of a claim that it should stop, and kill its process after that many seconds."""
        with self._lock:
            children = list(self._busy)
        for child in children:
            child.stop(lease, seconds)

    def prepare(self) -> None:
        """Start a process for the calling thread's first claim, unless one is idle."""
        self._start(new=False)

    def add(self) -> None:
        """Start one more process; returns once it is ready, or did not start."""
        self._start(new=True)

    def end_idle(self) -> None:
        """Let the idle processes run their exit handlers and end. Does not wait."""
        with self._lock:
            idle, self._idle = self._idle, []
        for child in idle:
            self._end(child)

    def end_processes(self) -> None:
        """End all processes; none may run a claim. Waits as long as their exit handlers may take."""
        until = monotonic() + END_TIMEOUT
        self.end_idle()
        for child in self._ending:
            child.join(until)
        # Those that are starting, or did not end in time. An exit handler of multiprocessing waits for what is left.
        self.close()

    def close(self) -> None:
        """Start no more processes, and kill all there are: an interrupted job must not continue."""
        self._closed.set()
        with self._lock:
            for child in (*self._busy, *self._idle, *self._ending):
                child.kill_async()

    def _start(self, *, new: bool) -> None:
        try:
            child = self._take(new=new)
        except OSError as error:
            # Ahead of a first claim: that claim then fails with the same error.
            logger.error("No process for tasks could be started: %r", error)
            self._closed.wait(_FIRST_WAIT)
            return
        if child is not None:
            self._wait_ready(child)
            self._put_back(child)

    def _take(self, *, new: bool = False) -> ChildProcess | None:
        with self._lock:
            # The last one used: its caches are warm, and the others can be swapped out.
            while self._idle and not new:
                child = self._idle.pop()
                if child.alive:
                    self._busy.add(child)
                    return child
                child.kill()
            if self._closed.is_set():
                return None
            child = ChildProcess(_context)
            self._busy.add(child)
            return child

    def _put_back(self, child: ChildProcess) -> None:
        is_worn = (self._max_jobs is not None and child.claims_run >= self._max_jobs) or (
            self._max_memory is not None and child.rss > self._max_memory
        )
        with self._lock:
            self._busy.discard(child)
            is_usable = child.alive and not self._closed.is_set()
            if is_usable and not is_worn:
                self._idle.append(child)
                return
        if is_usable:
            self._end(child)
        else:
            child.kill()

    def _end(self, child: ChildProcess) -> None:
        child.end()
        with self._lock:
            self._ending = [*(each for each in self._ending if each.alive), child]

    def _wait_ready(self, child: ChildProcess) -> bool:
        if child.wait_ready():
            self._failures = 0
            return True
        if not self._closed.is_set():
            self._failures += 1
            wait = backoff(self._failures, first=_FIRST_WAIT, longest=_LONGEST_WAIT)
            logger.error(
                "A process for tasks ended before it was ready, or took longer than %.0f s to start. "
                "If manage.py runs its command when it is imported, put the call under "
                '`if __name__ == "__main__":`. The next process starts in %.0f s.',
                START_TIMEOUT,
                wait,
            )
            self._closed.wait(wait)
        return False
