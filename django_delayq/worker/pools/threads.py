"""Threads: a pool of threads that take one claim at a time, and the `ClaimRunner` that runs each.

A runner runs the task in the thread itself, or passes the claim on to a child process or to another system.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

from django_delayq.job.job import Claim
from django_delayq.job.outcome import UNSTARTED, Outcome
from django_delayq.logs import logger
from django_delayq.task.context import RunLink
from django_delayq.worker.execution import run
from django_delayq.worker.pools.active_threads import ActiveThreads
from django_delayq.worker.pools.base import Pool
from django_delayq.worker.pools.claim_queue import ClaimQueue, PoolClient, Seat
from django_delayq.worker.pools.recovery import RecoveryRunner


class ClaimRunner(Protocol):
    """Run claims for the threads of a pool. `prepare()` and `run()` are called by several threads at once."""

    def prepare(self) -> None:
        """Get ready for a thread's first claim."""

    def run(self, claim: Claim, begin: Callable[[], bool], link: RunLink) -> Outcome:
        """Run a claim to its end.

        The runner calls `begin` right before the claim's code. If that returns False, the claim is unstarted.
        """

    def stop(self, lease: bytes, seconds: float) -> None:
        """End the code of a claim by force after that many seconds, if that is possible."""

    def end_processes(self) -> None:
        """End child processes, which run no claim any more, and wait a moment for them."""

    def close(self) -> None:
        """Interrupt what can be interrupted."""


class InThreadRunner:
    """Run claims in the calling thread."""

    def __init__(self, execute: Callable[..., Outcome] = run) -> None:
        """`execute` runs a claim's task, or forwards the job to another system; it raises nothing.

        It is called with the claim and, as `link`, with the `RunLink` of its code.
        """
        self._execute = execute

    def prepare(self) -> None:
        """Do nothing: there is nothing to start."""

    def run(self, claim: Claim, begin: Callable[[], bool], link: RunLink) -> Outcome:
        """Run a claim to its end, unless it must not begin."""
        return self._execute(claim, link=link) if begin() else UNSTARTED

    def stop(self, lease: bytes, seconds: float) -> None:
        """Do nothing: no thread can be ended. The code runs on until it looks."""

    def end_processes(self) -> None:
        """Do nothing: there are no processes."""

    def close(self) -> None:
        """Do nothing: a thread ends with the process."""


class ThreadPool(Pool):
    """Run claims in up to `size` threads, in the order they were submitted."""

    def __init__(
        self, size: int, runner: ClaimRunner | None = None, *, recovery: RecoveryRunner | None, ready: bool = True
    ) -> None:
        """Start all threads now and prepare the runner in each if `ready`; else start each when a claim needs it.

        Jobs whose last attempt crashed go to `recovery`; without one, to the runner as all others.
        """
        self._queue = ClaimQueue()
        super().__init__(size, recovery=recovery, queues=[self._queue])
        self._runner = runner or InThreadRunner()
        self._active_threads = ActiveThreads(self._queue, size)
        self._seats: list[Seat] = []
        if ready:
            self._add_threads(size, prepare=self._runner.prepare)

    def submit(self, claims: Sequence[Claim], owner: PoolClient) -> None:
        """Queue claims; their owner gets each outcome from a thread of the pool, or from `release_queued()`."""
        self._queue.put(claims, owner)
        if len(self._seats) < self.size:
            self._add_threads(min(self.size, self._queue.held) - len(self._seats))
        self._active_threads.wake(len(claims))

    def stop(self, lease: bytes, seconds: float) -> None:
        """Show the code of a claim that it should stop; kill its process after that many seconds if it has one."""
        entry = self._queue.find(lease)
        if entry is not None:
            entry.should_stop = True
            self._runner_of(entry.claim).stop(lease, seconds)

    def is_stuck(self, seconds: float) -> bool:
        """Return whether the job of every thread is past its hard limit by that many seconds."""
        return self._queue.overrun(seconds) >= self.size

    def end_processes(self) -> None:
        """End the child processes, as `Pool.end_processes()`."""
        super().end_processes()
        self._runner.end_processes()

    def close(self) -> None:
        """Begin nothing more, and interrupt what runs in processes; threads end with this process."""
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
                # The other threads do its work meanwhile. If there is none, the worker releases the claims.
                logger.error("No thread for tasks could be started: %s", error)
                return
            self._seats.append(seat)

    def _start(self, seat: Seat, number: int, prepare: Callable[[], object] = lambda: None) -> None:
        work = partial(self._work, seat, number, prepare)
        threading.Thread(target=work, name=f"delayq-{number}", daemon=True).start()

    def _work(self, seat: Seat, number: int, prepare: Callable[[], object]) -> None:
        # A late exception of a time limit can strike anywhere here, and a second one in the handler of the first.
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
        finally:
            try:
                # If no other thread can be started, this one must not count as active forever.
                self._active_threads.leave(seat)
            finally:
                self._start(seat, number)

    def _serve(self, seat: Seat) -> None:
        while True:
            self._active_threads.wait(seat)
            while (entry := self._queue.take(seat)) is not None:
                runner = self._runner_of(entry.claim)
                self._queue.end(entry, runner.run(entry.claim, partial(self._queue.begin, entry), entry))
                seat.entry = None
                if self._active_threads.should_wait():
                    break

    def _runner_of(self, claim: Claim) -> ClaimRunner:
        return self.recovery if self.recovery and claim.attempts.crash_suspected else self._runner
