"""DelayQ: the queue of one test: see what is enqueued, let time pass, and assert.

Inside the block every job of this process goes to a private Redis, with a prefix and a clock of its own. Nothing else
is replaced: keys, scripts, retries and signals are those of production.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import datetime, timedelta
from time import monotonic
from typing import Any, Self, Unpack
from unittest import TestCase

from asgiref.sync import sync_to_async

from django_delayq import runtime
from django_delayq.clock import LATEST_US, Units, duration_us, moment, moment_us, timedelta_of
from django_delayq.exceptions import DelayQError, DelayTypeError, DelayValueError
from django_delayq.store.records import DeclaredBy
from django_delayq.store.schedules.schedule_declarations import ScheduleDeclarations
from django_delayq.task import outbox
from django_delayq.task.handle import JobHandle
from django_delayq.task.recurring.declarations import declared_schedules, make_declarations
from django_delayq.testing import job_views
from django_delayq.testing.expected_job import ExpectedJob, name_of
from django_delayq.testing.fake_clock import FakeClock
from django_delayq.testing.inline_worker import Errors
from django_delayq.testing.isolation import private_store, redis_unavailable, stores
from django_delayq.testing.job_views import EnqueuedJob, JobRun
from django_delayq.testing.simulator import LIMIT, Simulator
from django_delayq.testing.transactions import commits_of_the_code


class DelayQ:
    """The queue of one test, with a private Redis and a clock that the test controls.

    It is a context manager::

        with DelayQ() as delayq:
            order.place()
            delayq.assert_enqueued(send_reminder, args=[order.pk], due_in=600)
            delayq.advance(minutes=10, run=True)
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._clock = FakeClock()
        self._entered_at = 0.0
        self._simulator = Simulator(self._clock)
        #: Runs the jobs that were sent, in the innermost `eager()` block.
        self._eager: Callable[[Sequence[JobHandle]], None] | None = None

    def __enter__(self) -> Self:
        self._stack.enter_context(private_store(self._clock))
        self._stack.enter_context(commits_of_the_code())
        self._entered_at = monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        # A test case is pickled with its attributes for another process; the queue of this process is useless there.
        return type(self), ()

    @property
    def now(self) -> datetime:
        """The time of the queue's clock; aware, UTC."""
        return moment(self._clock.now_us)

    @property
    def enqueued(self) -> list[EnqueuedJob]:
        """The jobs that wait, in the order in which they will run."""
        return job_views.waiting(stores(), now_us=self._clock.now_us)

    @property
    def dead(self) -> list[EnqueuedJob]:
        """The dead letters, oldest first."""
        return job_views.dead(stores(), now_us=self._clock.now_us)

    @property
    def ran(self) -> list[JobRun]:
        """All attempts that ran in this test, oldest first."""
        return self._simulator.ran

    def run_due(self, *, errors: Errors = "raise", limit: int = LIMIT) -> list[JobRun]:
        """Run all jobs that are due now, one after the other, in this thread; returns the attempts that ran.

        Jobs that a task enqueues without a delay run, too. An exception in a task is raised here, after the job is
        settled; `errors="retry"` leaves it to the retry policy. Raises `DelayQError` if more than `limit` jobs run.
        """
        return self._simulator.run(until_us=0, errors=errors, limit=limit)

    def advance(
        self,
        delay: float | timedelta | None = None,
        *,
        run: bool = False,
        errors: Errors = "raise",
        limit: int = LIMIT,
        **units: Unpack[Units],
    ) -> list[JobRun]:
        """Move the clock forward: seconds, a timedelta, or its keywords (`minutes=10`). Nothing sleeps.

        With `run`, each job that becomes due meanwhile runs at its own time; returns the attempts that ran.
        """
        if (delay is None) is not bool(units):
            raise DelayTypeError("advance() takes seconds, a timedelta, or keywords such as minutes=10")
        with self._clock.frozen():
            until_us = self._clock.now_us + duration_us(timedelta_of(units) if delay is None else delay)
            if until_us > LATEST_US:
                raise DelayValueError("advance() cannot go beyond the year 2255, the latest time of a job")
            ran = self._simulator.run(until_us=until_us, errors=errors, limit=limit) if run or self._eager else []
            self._clock.now_us = until_us
        return ran

    def advance_to(
        self, moment: datetime, *, run: bool = False, errors: Errors = "raise", limit: int = LIMIT
    ) -> list[JobRun]:
        """Move the clock forward to an aware datetime, as `advance()` does."""
        with self._clock.frozen():
            left_us = moment_us(moment, name="moment") - self._clock.now_us
            if left_us < 0:
                raise DelayQError(f"advance_to() needs a moment in the future; {moment} is past, it is {self.now}")
            return self.advance(timedelta(microseconds=left_us), run=run, errors=errors, limit=limit)

    def drain(self, *, errors: Errors = "raise", limit: int = LIMIT) -> list[JobRun]:
        """Run all jobs that wait, each at its time, until none is left; returns the attempts that ran.

        Recurring schedules run meanwhile. The next job of each, which always waits, is left for `advance(…, run=True)`.
        """
        return self._simulator.run(until_us=None, errors=errors, limit=limit)

    def declare_schedules(self, *tasks: Any) -> None:
        """Store the recurring schedules that the code and the settings declare: of these tasks, or of all.

        A dispatcher does that when it starts; a test has only those that it asks for. A task may be its name. Raises
        `DelayQError` if there are none, or if one cannot be stored.
        """
        names = [name_of(task) for task in tasks]
        found = [name for store in stores() for name, _, _ in declared_schedules(store)]
        if missing := set(names or found or ["the code"]) - set(found):
            raise DelayQError(f"{', '.join(sorted(missing))} declares no recurring schedule")
        for store in stores():
            for shard in store.shards:
                made, declarations = make_declarations(store, shard.index, tasks=names), ScheduleDeclarations(shard)
                for text, error in made.faults:
                    raise DelayQError(text) from error
                by = DeclaredBy(os.urandom(8), self._clock.now_us, made.digest)
                declarations.declare_and_cancel(
                    made.definitions, by=by, kept=made.kept, after=declarations.declared_by()
                )

    async def arun_due(self, **options: Any) -> list[JobRun]:
        """Do what `run_due()` does, from async code."""
        return await sync_to_async(self.run_due)(**options)

    async def aadvance(self, delay: float | timedelta | None = None, **options: Any) -> list[JobRun]:
        """Do what `advance()` does, from async code."""
        return await sync_to_async(self.advance)(delay, **options)

    async def adrain(self, **options: Any) -> list[JobRun]:
        """Do what `drain()` does, from async code."""
        return await sync_to_async(self.drain)(**options)

    @contextmanager
    def eager(self, *, honour_delays: bool = False, errors: Errors = "raise") -> Iterator[None]:
        """Run each job when it is sent, before `enqueue()` returns; inside a transaction, when the transaction ends.

        Delays are skipped, also between attempts. With `honour_delays` delayed jobs wait for `advance()`, which runs
        them. Jobs that a task enqueues run after the task.
        """

        def sent(handles: Sequence[JobHandle]) -> None:
            if self._eager is not sent:
                # The innermost block decides.
                return
            if not honour_delays:
                self._simulator.skip_delay(handles)
            if not self._simulator.is_running:
                self._simulator.run(until_us=0, errors=errors, limit=LIMIT)

        before, self._eager = self._eager, sent
        try:
            with runtime.override(on_sent=(*runtime.current().on_sent, sent)):
                yield
        finally:
            self._eager = before

    def unavailable(self) -> AbstractContextManager[None]:
        """Make Redis unreachable inside the block: `enqueue()` raises `StoreUnavailable` at once."""
        return redis_unavailable()

    def assert_enqueued(
        self,
        task: Any,
        *,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        due_in: float | timedelta | None = None,
        due: datetime | None = None,
        queue: str | None = None,
        priority: int | None = None,
        key: str | None = None,
        count: int | None = None,
    ) -> EnqueuedJob:
        """Assert that a job of the task is enqueued that matches the arguments; returns the first one.

        `due_in` is in seconds or a timedelta from now; due times match to the second. `count` is the exact number of
        matching jobs. Raises AssertionError, which shows the nearest job.
        """
        __tracebackhide__ = True
        if count is not None and count < 1:
            raise ValueError("count must be at least 1; use assert_not_enqueued() for none")
        wanted = {"args": args, "kwargs": kwargs, "queue": queue, "priority": priority, "key": key}
        expected, jobs, found = self._find(task, due_in=due_in, due=due, **wanted)
        if not found:
            raise AssertionError(f"Not enqueued: {expected}\n{expected.describe_enqueued(jobs)}{_hint()}")
        if count is not None and len(found) != count:
            shown = "\n    ".join(map(repr, found))
            raise AssertionError(f"Enqueued {len(found)} times instead of {count}: {expected}\n    {shown}{_hint()}")
        return found[0]

    def assert_not_enqueued(self, task: Any, **wanted: Any) -> None:
        """Assert that no job of the task is enqueued that matches the arguments, those of `assert_enqueued()`."""
        __tracebackhide__ = True
        expected, _, found = self._find(task, **wanted)
        if found:
            shown = "\n    ".join(map(repr, found))
            raise AssertionError(f"Unexpectedly enqueued: {expected}\n    {shown}")

    def _find(self, task: Any, **wanted: Any) -> tuple[ExpectedJob, list[EnqueuedJob], list[EnqueuedJob]]:
        took = timedelta(seconds=monotonic() - self._entered_at)
        expected, jobs = ExpectedJob.of(task, took=took, **{"args": None, "kwargs": None, **wanted}), self.enqueued
        return expected, jobs, [job for job in jobs if job.task == expected.task and not expected.mismatches(job)]


def _hint() -> str:
    if outbox.open_transactions():
        return "\nThis is inside transaction.atomic(): its jobs are sent when the block ends."
    return ""


class DelayQMixin:
    """Gives each test of a test case a queue of its own: `class SaleTests(DelayQMixin, TestCase)`.

    For SimpleTestCase, TestCase, TransactionTestCase and their subclasses.
    """

    _delayq: DelayQ | None = None

    def setUp(self) -> None:
        """Enter the queue until the end of the test."""
        super().setUp()  # type: ignore[misc]
        assert isinstance(self, TestCase)
        self._delayq = self.enterContext(DelayQ())

    @property
    def delayq(self) -> DelayQ:
        """The queue of this test."""
        if self._delayq is None:
            raise DelayQError(
                "delayq exists from setUp() on: put DelayQMixin before the test case class, "
                "and call super().setUp() in your own setUp()"
            )
        return self._delayq
