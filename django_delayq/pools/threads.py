"""Threads: a pool of threads in this process; the default.

Suspects (jobs whose last attempt ended in a crash) are run in a process of their own, with one of the threads waiting
for it.
"""

import queue
import threading
from collections import deque
from time import monotonic

from django_delayq.execution import run
from django_delayq.job import Claim
from django_delayq.outcome import UNSTARTED, Outcome
from django_delayq.pools.alone import Alone
from django_delayq.pools.pool import Finished


class ThreadPool:
    """Run claims in `size` threads, in the order they were submitted."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._inbox: queue.SimpleQueue[tuple[Claim, Finished]] = queue.SimpleQueue()
        # When each claim in the inbox was submitted; a queue cannot be looked into.
        self._since: deque[float] = deque()
        self._lock = threading.Lock()
        self._held = 0
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

    def submit(self, claim: Claim, finished: Finished) -> None:
        """Take a claim in; `finished` is called once, in a thread of the pool or in `withdraw()`."""
        with self._lock:
            self._held += 1
        self._since.append(monotonic())
        self._inbox.put((claim, finished))

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
                claim, finished = self._inbox.get_nowait()
                self._since.popleft()
                self._end(claim, finished, UNSTARTED)
        except queue.Empty:
            return

    def close(self) -> None:
        """Kill the processes that run suspects; threads end with the process."""
        self._alone.close()

    def _work(self) -> None:
        while True:
            claim, finished = self._inbox.get()
            self._since.popleft()
            outcome: Outcome = self._alone.run(claim) if claim.attempts.suspect else run(claim)
            self._end(claim, finished, outcome)

    def _end(self, claim: Claim, finished: Finished, outcome: Outcome) -> None:
        with self._lock:
            self._held -= 1
        finished(claim, outcome)
