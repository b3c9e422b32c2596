"""Threads: a pool of threads, each with one claim at a time, and what a thread does with it.

By default it runs the task's code itself; other runners hand the claim to a process, or to another system.
"""

import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Protocol

from django_delayq.execution import run
from django_delayq.job import Claim
from django_delayq.outcome import UNSTARTED, Outcome
from django_delayq.pools.children import Children
from django_delayq.pools.pool import Owner


class Runner(Protocol):
    """What a thread does with a claim; called by several at once."""

    def prepare(self) -> None:
        """Get ready ahead of a thread's first claim."""

    def run(self, claim: Claim, may_begin: Callable[[Claim], bool]) -> Outcome:
        """Run a claim to its end; where that takes preparation, `may_begin` is asked after it."""

    def close(self) -> None:
        """End what can be ended."""


class Here:
    """Run claims in the thread itself; a suspect, whose last attempt ended in a crash, in a process of its own."""

    def __init__(self) -> None:
        self._alone = Children(max_jobs=1)

    def prepare(self) -> None:
        """There is nothing to prepare."""

    def run(self, claim: Claim, may_begin: Callable[[Claim], bool]) -> Outcome:
        """Run the claim; a suspect's process takes about half a second more than the task."""
        return self._alone.run(claim, may_begin) if claim.attempts.suspect else run(claim)

    def close(self) -> None:
        """Kill the processes that run suspects; threads end with the process."""
        self._alone.close()


class ThreadPool:
    """Run claims in `size` threads, in the order they were submitted."""

    def __init__(self, size: int, runner: Runner | None = None) -> None:
        self.size = size
        self._runner = runner or Here()
        self._inbox: queue.SimpleQueue[tuple[Claim, Owner]] = queue.SimpleQueue()
        # When each claim in the inbox was submitted; a queue cannot be looked into.
        self._since: deque[float] = deque()
        self._lock = threading.Lock()
        self._held = 0
        #: Claims finished so far.
        self.ended = 0
        self._threads = [
            threading.Thread(target=self._work, name=f"delayq-{number}", daemon=True) for number in range(size)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def held(self) -> int:
        """Claims taken in and not finished."""
        return self._held

    @property
    def unbegun(self) -> int:
        """Claims taken in whose code has not begun."""
        return self._inbox.qsize()

    def submit(self, claims: Sequence[Claim], owner: Owner) -> None:
        """Take claims in; their owner is told when each has finished, by a thread of the pool or by `withdraw()`."""
        with self._lock:
            self._held += len(claims)
        now = monotonic()
        for claim in claims:
            self._since.append(now)
            self._inbox.put((claim, owner))

    def waited(self) -> float:
        """Return for how many seconds the oldest claim has waited to begin."""
        try:
            return monotonic() - self._since[0]
        except IndexError:
            return 0.0

    def withdraw(self) -> None:
        """Finish all claims that have not begun as unstarted."""
        try:
            while True:
                claim, owner = self._inbox.get_nowait()
                self._since.popleft()
                self._end(claim, owner, UNSTARTED)
        except queue.Empty:
            return

    def close(self) -> None:
        """End what can be ended; threads end with the process."""
        self._runner.close()

    def _work(self) -> None:
        self._runner.prepare()
        while True:
            claim, owner = self._inbox.get()
            self._since.popleft()
            if owner.may_begin(claim):
                self._end(claim, owner, self._runner.run(claim, owner.may_begin))
            else:
                self._end(claim, owner, UNSTARTED)

    def _end(self, claim: Claim, owner: Owner, outcome: Outcome) -> None:
        with self._lock:
            self._held -= 1
            self.ended += 1
        owner.finished(claim, outcome)
