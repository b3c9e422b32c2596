"""Threads: a pool of threads, each with one claim at a time, and what a thread does with it.

By default it runs the task's code itself; other runners hand the claim to a process, or to another system.
"""

import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

from django_delayq.job.job import Claim
from django_delayq.job.outcome import UNSTARTED, Outcome
from django_delayq.log import logger
from django_delayq.worker.execution import run
from django_delayq.worker.pools.base import PoolClient
from django_delayq.worker.pools.claim_queue import ClaimQueue, Seat
from django_delayq.worker.pools.recovery import RecoveryRunner


class ClaimRunner(Protocol):
    """What a thread does with a claim; called by several at once."""

    def prepare(self) -> None:
        """Get ready ahead of a thread's first claim."""

    def run(self, claim: Claim, begin: Callable[[], bool]) -> Outcome:
        """Run a claim to its end. `begin` is called right before its code begins; if false, the claim is unstarted."""

    def close(self) -> None:
        """End what can be ended."""


class InThreadRunner:
    """Run claims in the thread itself."""

    def prepare(self) -> None:
        """There is nothing to prepare."""

    def run(self, claim: Claim, begin: Callable[[], bool]) -> Outcome:
        """Run the claim."""
        return run(claim) if begin() else UNSTARTED

    def close(self) -> None:
        """There is nothing to end: threads end with the process."""


class ThreadPool:
    """Run claims in up to `size` threads, in the order they were submitted."""

    def __init__(
        self, size: int, runner: ClaimRunner | None = None, *, recovery: RecoveryRunner | None, ready: bool = True
    ) -> None:
        """Start all threads now if `ready`, each with its runner prepared, else each when a claim needs it.

        Jobs that came back from a crash are given to `recovery`; without one, to the runner as all others.
        """
        self.size = size
        self.recovery = recovery
        self._runner = runner or InThreadRunner()
        self._queue = ClaimQueue()
        #: One item for each claim that waits; a thread that finds no claim behind its item waits for the next.
        self._signals: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._seats: list[Seat] = []
        if ready:
            self._add_threads(size, prepare=self._runner.prepare)

    @property
    def held(self) -> int:
        """Claims taken in and not finished."""
        return self._queue.held

    @property
    def queued(self) -> int:
        """Claims taken in that no thread has come to."""
        return self._queue.queued

    @property
    def finished_count(self) -> int:
        """Claims finished so far."""
        return self._queue.finished_count

    def submit(self, claims: Sequence[Claim], owner: PoolClient) -> None:
        """Take claims in; their owner is told when each has finished, by a thread of the pool or by `withdraw()`."""
        self._queue.put(claims, owner)
        if len(self._seats) < self.size:
            self._add_threads(min(self.size, self._queue.held) - len(self._seats))
        for _ in claims:
            self._signals.put(None)

    def oldest_wait(self) -> float:
        """Return for how many seconds the oldest claim has waited to begin."""
        return self._queue.oldest_wait()

    def has_begun(self, claim: Claim) -> bool:
        """Whether a claim's code may have begun; certain once the pool is closed."""
        return self._queue.has_begun(claim)

    def is_stuck(self, seconds: float) -> bool:
        """Whether the job of every thread is beyond its hard limit by so many seconds."""
        return self._queue.overrun(seconds) >= self.size

    def release_queued(self) -> None:
        """Finish all claims that no thread has come to as unstarted."""
        self._queue.release_queued()

    def close(self) -> None:
        """Begin nothing more, and end what can be ended; threads end with the process."""
        self._queue.close()
        self._runner.close()
        if self.recovery:
            self.recovery.close()

    def _add_threads(self, count: int, prepare: Callable[[], object] = lambda: None) -> None:
        for _ in range(count):
            seat = Seat()
            try:
                self._start(seat, len(self._seats), prepare)
            except RuntimeError as error:
                # The others do its work until there is room; where there is none, its worker gives the claims back.
                logger.error("No thread for tasks could be started: %s", error)
                return
            self._seats.append(seat)

    def _start(self, seat: Seat, number: int, prepare: Callable[[], object] = lambda: None) -> None:
        work = partial(self._work, seat, number, prepare)
        threading.Thread(target=work, name=f"delayq-{number}", daemon=True).start()

    def _work(self, seat: Seat, number: int, prepare: Callable[[], object]) -> None:
        # A late exception of a time limit can strike anywhere here, a second one in what the first one led to.
        error: BaseException = RuntimeError("The thread that ran the task was ended by exceptions raised in it.")
        try:
            with suppress(Exception):
                prepare()
            while True:
                try:
                    self._queue.recover(seat, error)
                    self._serve(seat)
                except BaseException as struck:
                    error = struck
                    # One may have been taken for a claim that still waits; one too many does no harm.
                    self._signals.put(None)
        finally:
            self._start(seat, number)

    def _serve(self, seat: Seat) -> None:
        while True:
            self._signals.get()
            entry = self._queue.take(seat)
            if entry is not None:
                runner = self.recovery if self.recovery and entry.claim.attempts.crash_suspected else self._runner
                self._queue.end(entry, runner.run(entry.claim, partial(self._queue.begin, entry)))
                seat.entry = None
