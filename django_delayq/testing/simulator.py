"""Simulator: run the jobs of a test in its own thread, and move the clock to their due times."""

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

#: Most jobs that one call runs: a task that enqueues itself would never end.
LIMIT = 1_000


class Simulator:
    """Runs the jobs of one test."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._workers: tuple[list[Store], list[InlineWorker]] = ([], [])
        #: Whether jobs are running: jobs that they enqueue run after them.
        self.is_running = False
        #: Jobs that run before their due time.
        self._without_delay: list[JobHandle] = []
        #: All attempts that ran, oldest first.
        self.ran: list[JobRun] = []

    def run(self, *, until_us: int | None, errors: Errors, limit: int) -> list[JobRun]:
        """Run each job that becomes due until `until_us` (µs since the epoch), at its time.

        None: until no job is left but those that recurring schedules have planted.
        """
        _check(errors, is_running=self.is_running)
        ran: list[JobRun] = []
        self.is_running = True
        try:
            with self._clock.frozen():
                while True:
                    for job in self._due(errors):
                        ran.append(job)
                        self.ran.append(job)
                        if len(ran) > limit:
                            raise DelayQError(
                                f"More than {limit:,} jobs ran. Does a task enqueue itself, or a schedule run often? "
                                f"Pass a larger limit=, or use advance(…, run=True)."
                            )
                    if self._promote_without_delay():
                        continue
                    planting_us = job_views.next_planting_us(stores())
                    if planting_us is not None and planting_us <= self._clock.now_us:
                        # A dispatcher plants some hundred at a time.
                        continue
                    # A schedule without an end would run for ever, so its next job alone is not waited for.
                    if until_us is None and job_views.next_due_us(stores(), planted=False) is None:
                        return ran
                    moments = (job_views.next_due_us(stores()), planting_us)
                    next_us = min((moment_us for moment_us in moments if moment_us is not None), default=None)
                    if next_us is None or (until_us is not None and next_us > until_us):
                        return ran
                    self._clock.now_us = max(self._clock.now_us, next_us)
        finally:
            self.is_running = False

    def skip_delay(self, handles: Sequence[JobHandle]) -> None:
        """Let these jobs, and their further attempts, run without a delay."""
        # Skip handles of an existing unique key: that job keeps its due time.
        self._without_delay += [handle for handle in handles if handle.created]

    def _due(self, errors: Errors) -> Iterator[JobRun]:
        known, current = self._workers[0], stores()
        if known != current:
            self._workers = current, [InlineWorker(store, shard) for store in current for shard in store.shards]
        again = True
        while again:
            again = False
            for worker in self._workers[1]:
                for job in worker.run(errors=errors):
                    again = True
                    yield job

    def _promote_without_delay(self) -> bool:
        """Make the jobs without delay due now; returns whether there was one."""
        self._without_delay = [
            handle for handle in self._without_delay if handle.refresh().state in (State.SCHEDULED, State.READY)
        ]
        moved = [handle.reschedule(delay=0) for handle in self._without_delay if handle.state is State.SCHEDULED]
        return any(moved)


def _check(errors: Any, *, is_running: bool) -> None:
    if errors not in ("raise", "retry"):
        raise ValueError(f"errors must be 'raise' or 'retry', got {errors!r:.80}")
    if is_running:
        raise DelayQError("Jobs cannot be run by a task that runs in a test, only by the test itself.")
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise DelayQError(
        "Jobs may block the event loop. In async tests use await delayq.arun_due(), aadvance() and adrain()."
    )
