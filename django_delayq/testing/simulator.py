"""Play: jobs run in the test's own thread, and time follows them."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from django_delayq.exceptions import DelayQError
from django_delayq.job.job import State
from django_delayq.store.store import Store
from django_delayq.task.handle import JobHandle
from django_delayq.testing import job_views
from django_delayq.testing.fake_clock import FakeClock
from django_delayq.testing.inline_worker import Errors, InlineWorker
from django_delayq.testing.isolation import stores
from django_delayq.testing.job_views import JobRun

#: Jobs that one call runs at most: a task that enqueues itself would run for ever.
LIMIT = 1_000


class Simulator:
    """What runs in one test."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._runners: tuple[list[Store], list[InlineWorker]] = ([], [])
        #: Whether jobs run just now: those they enqueue run after them.
        self.runs = False
        #: What is to run before its time.
        self._hasty: list[JobHandle] = []
        #: Every attempt that ran, oldest first.
        self.ran: list[JobRun] = []

    def run(self, *, until_us: int | None, errors: Errors, limit: int) -> list[JobRun]:
        """Run what becomes due until that moment (µs since the epoch), each at its time; 0: what is due, None: all."""
        _check(errors, runs=self.runs)
        ran: list[JobRun] = []
        self.runs = True
        try:
            with self._clock.frozen():
                while True:
                    for job in self._due(errors):
                        ran.append(job)
                        self.ran.append(job)
                        if len(ran) > limit:
                            raise DelayQError(
                                f"{limit:,} jobs ran and there are more: does a task enqueue itself? "
                                f"Give a larger limit=, or let time pass by advance(…, run=True)."
                            )
                    if self._hurry():
                        continue
                    due_us = job_views.next_due_us(stores())
                    if due_us is None or (until_us is not None and due_us > until_us):
                        return ran
                    self._clock.now_us = due_us
        finally:
            self.runs = False

    def skip_delay(self, handles: Sequence[JobHandle]) -> None:
        """Let these jobs, and their further attempts, run before their time."""
        # Who holds a key that was asked for again was there before, and keeps its time.
        self._hasty += [handle for handle in handles if handle.created]

    def _due(self, errors: Errors) -> Iterator[JobRun]:
        known, there = self._runners[0], stores()
        if known != there:
            self._runners = there, [InlineWorker(store, shard) for store in there for shard in store.shards]
        again = True
        while again:
            again = False
            for runner in self._runners[1]:
                for job in runner.run(errors=errors):
                    again = True
                    yield job

    def _hurry(self) -> bool:
        """Make what is hasty and waits for its time due now; tells whether there was any."""
        self._hasty = [handle for handle in self._hasty if handle.refresh().state in (State.SCHEDULED, State.READY)]
        moved = [handle.reschedule(delay=0) for handle in self._hasty if handle.state is State.SCHEDULED]
        return any(moved)


def _check(errors: Any, *, runs: bool) -> None:
    if errors not in ("raise", "retry"):
        raise ValueError(f"errors must be 'raise' or 'retry', got {errors!r:.80}")
    if runs:
        raise DelayQError("This is a task that runs in a test; only the test itself can let further jobs run.")
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise DelayQError("Jobs may block the loop; in async tests use await delayq.arun_due(), aadvance(), adrain().")
