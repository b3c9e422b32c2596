"""Children: processes that run claims one after another, each replaced when it dies or is worn.

A task that kills its process costs one attempt of one job; a hard time limit is enforced by killing.
"""

import multiprocessing
import threading
from collections.abc import Callable

from django_delayq.job.job import Claim
from django_delayq.job.outcome import STOPPED, UNSTARTED, Outcome, OutcomeKind
from django_delayq.log import logger
from django_delayq.worker.pools.child import BOOT, ChildProcess

#: Seconds to wait after a child that did not come up: after the first, and at most.
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 30.0
# Spawned: a fork of this process, which has threads, may hold somebody's lock for ever.
_context = multiprocessing.get_context("spawn")


class ProcessRunner:
    """As many processes as there are callers at once; those that are idle are used again."""

    def __init__(self, *, max_jobs: int | None = None, max_memory: int | None = None) -> None:
        """`max_jobs` is the number of claims after which a child is replaced, `max_memory` its bytes in RAM."""
        self._max_jobs, self._max_memory = max_jobs, max_memory
        self._lock = threading.Lock()
        self._idle: list[ChildProcess] = []
        self._busy: set[ChildProcess] = set()
        self._failures = 0
        self._closed = threading.Event()

    @property
    def count(self) -> int:
        """Processes that were started and not ended, those that still start included."""
        with self._lock:
            # Nobody else looks at those that died idle while no claim comes, and none comes while they count.
            for child in [child for child in self._idle if not child.alive]:
                self._idle.remove(child)
                child.kill()
            return len(self._busy) + len(self._idle)

    @property
    def up(self) -> int:
        """Processes that run a claim, or wait for one."""
        with self._lock:
            return sum(child.alive for child in self._idle) + sum(child.up for child in self._busy)

    def run(self, claim: Claim, begin: Callable[[], bool]) -> Outcome:
        """Run the claim to its end, its process's end, or its hard time limit.

        `begin` is called once a process is up: in that time the lease may be lost, or this process end, and then
        nobody answers it. The claim is unstarted if no process comes up.
        """
        try:
            child = self._take()
        except OSError as error:
            return Outcome(kind=OutcomeKind.FAILED, error=f"No process could be started for the task: {error}")
        if child is None:
            return UNSTARTED
        try:
            if not self._is_up(child) or not begin():
                return UNSTARTED
            outcome = child.run(claim)
        finally:
            self._put_back(child)
        if outcome.kind is OutcomeKind.CRASHED and self._closed.is_set():
            return Outcome(kind=OutcomeKind.INTERRUPTED, error=STOPPED, run_us=outcome.run_us, began=outcome.began)
        return outcome

    def prepare(self) -> None:
        """Start a process ahead of the first claim; called by each thread that will run claims."""
        self._ready(new=False)

    def add(self) -> None:
        """Start one more process and wait until it is up, or did not come up."""
        self._ready(new=True)

    def end_idle(self) -> None:
        """End the processes that wait for a claim."""
        with self._lock:
            idle, self._idle = self._idle, []
        for child in idle:
            child.kill()

    def close(self) -> None:
        """Kill what runs: a job that is given back must not run on."""
        self._closed.set()
        with self._lock:
            for child in (*self._busy, *self._idle):
                child.kill_async()

    def _ready(self, *, new: bool) -> None:
        try:
            child = self._take(new=new)
        except OSError as error:
            # Where it is ahead of a first claim, that one tells too.
            logger.error("No process for tasks could be started: %r", error)
            self._closed.wait(_FIRST_WAIT)
            return
        if child is not None:
            self._is_up(child)
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
        worn = (self._max_jobs is not None and child.ran >= self._max_jobs) or (
            self._max_memory is not None and child.rss > self._max_memory
        )
        with self._lock:
            self._busy.discard(child)
            if child.alive and not worn and not self._closed.is_set():
                self._idle.append(child)
                return
        child.kill()

    def _is_up(self, child: ChildProcess) -> bool:
        if child.wait_ready():
            self._failures = 0
            return True
        if not self._closed.is_set():
            self._failures += 1
            wait = min(_LONGEST_WAIT, _FIRST_WAIT * 2 ** min(self._failures - 1, 10))
            logger.error(
                "A process for tasks ended before it was ready, or took longer than %.0f s to start. "
                "The next one starts in %.0f s.",
                BOOT,
                wait,
            )
            self._closed.wait(wait)
        return False
