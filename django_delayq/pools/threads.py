"""Threads: a pool of threads in this process; the default.

Suspects (jobs whose last attempt ended in a crash) are run in a process of their own, with one of the threads waiting
for it.
"""

import queue
import threading
from collections import deque
from functools import partial
from time import monotonic

from django_delayq.execution import run
from django_delayq.job import Claim
from django_delayq.outcome import UNSTARTED, Outcome
from django_delayq.pools.alone import Alone
from django_delayq.pools.pool import Owner


class ThreadPool:
    """Run claims in `size` threads, in the order they were submitted."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._inbox: queue.SimpleQueue[tuple[Claim, Owner]] = queue.SimpleQueue()
        # When each claim in the inbox was submitted; a queue cannot be looked into.
        self._since: deque[float] = deque()
        self._lock = threading.Lock()
        self._held = 0
        #: Claims finished so far.
        self.ended = 0
        self._alone = Alone()
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

    def submit(self, claim: Claim, owner: Owner) -> None:
        """Take a claim in; its owner is told when it has finished, by a thread of the pool or by `withdraw()`."""
        with self._lock:
            self._held += 1
        self._since.append(monotonic())
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
        """Kill the processes that run suspects; threads end with the process."""
        self._alone.close()

    def _work(self) -> None:
        while True:
            claim, owner = self._inbox.get()
            self._since.popleft()
            if owner.may_begin(claim):
                outcome = (
                    self._alone.run(claim, partial(owner.may_begin, claim)) if claim.attempts.suspect else run(claim)
                )
                self._end(claim, owner, outcome)
            else:
                self._end(claim, owner, UNSTARTED)

    def _end(self, claim: Claim, owner: Owner, outcome: Outcome) -> None:
        with self._lock:
            self._held -= 1
            self.ended += 1
        owner.finished(claim, outcome)
