"""DelayQ: the queue in a test's hands: what waits, what runs when time passes, and assertions about both.

While it is entered, every job of this process goes to a private Redis under a prefix and a clock of its own. Nothing
else is replaced: keys, scripts, retries and signals are those of production.
"""

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
from django_delayq.task import outbox
from django_delayq.task.handle import JobHandle
from django_delayq.testing import job_views
from django_delayq.testing.expected_job import ExpectedJob
from django_delayq.testing.fake_clock import FakeClock
from django_delayq.testing.inline_worker import Errors
from django_delayq.testing.isolation import private_store, redis_unavailable, stores
from django_delayq.testing.job_views import EnqueuedJob, JobRun
from django_delayq.testing.simulator import LIMIT, Simulator
from django_delayq.testing.transactions import commits_of_the_code


class DelayQ:
    """The queue of one test; a context manager."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._clock = FakeClock()
        self._entered_at = 0.0
        self._play = Simulator(self._clock)
        #: What the innermost eager mode does with jobs that were sent.
        self._eager: Callable[[Sequence[JobHandle]], None] | None = None

    def __enter__(self) -> Self:
        self._stack.enter_context(private_store(self._clock))
        self._stack.enter_context(commits_of_the_code())
        self._entered_at = monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        # A test case goes to other processes with its attributes; what it holds of a queue is of no use there.
        return type(self), ()

    @property
    def now(self) -> datetime:
        """What time it is for the queue; aware, UTC."""
        return moment(self._clock.now_us)

    @property
    def enqueued(self) -> list[EnqueuedJob]:
        """What waits, in the order in which it is to run: what is due first, then by due time."""
        return job_views.waiting(stores(), now_us=self._clock.now_us)

    @property
    def dead(self) -> list[EnqueuedJob]:
        """What died, oldest first."""
        return job_views.dead(stores(), now_us=self._clock.now_us)

    @property
    def ran(self) -> list[JobRun]:
        """Every attempt that ran in this test, oldest first."""
        return self._play.ran

    def run_due(self, *, errors: Errors = "raise", limit: int = LIMIT) -> list[JobRun]:
        """Run everything that is due now, one job after another, in this thread; returns what ran.

        An exception in a task is raised here after the job was settled; `errors="retry"` leaves it to the retry policy.
        What tasks enqueue for at once runs too.
        """
        return self._play.run(until_us=0, errors=errors, limit=limit)

    def advance(
        self,
        delay: float | timedelta | None = None,
        *,
        run: bool = False,
        errors: Errors = "raise",
        limit: int = LIMIT,
        **units: Unpack[Units],
    ) -> list[JobRun]:
        """Let time pass: seconds, a timedelta, or timedelta's keywords (`minutes=10`); nothing sleeps.

        With `run`, everything that becomes due on the way runs at its own time, and is returned.
        """
        if (delay is None) is not bool(units):
            raise DelayTypeError("advance() takes seconds, a timedelta, or keywords such as minutes=10")
        with self._clock.frozen():
            until_us = self._clock.now_us + duration_us(timedelta_of(units) if delay is None else delay)
            if until_us > LATEST_US:
                raise DelayValueError("advance() goes as far as jobs can wait, to the year 2255; let less time pass")
            ran = self._play.run(until_us=until_us, errors=errors, limit=limit) if run or self._eager else []
            self._clock.now_us = until_us
        return ran

    def advance_to(
        self, moment: datetime, *, run: bool = False, errors: Errors = "raise", limit: int = LIMIT
    ) -> list[JobRun]:
        """Let time pass until an aware datetime; else as `advance()`."""
        with self._clock.frozen():
            left_us = moment_us(moment, name="moment") - self._clock.now_us
            if left_us < 0:
                raise DelayQError(f"advance_to() goes ahead only, and {moment} is past: it is {self.now}")
            return self.advance(timedelta(microseconds=left_us), run=run, errors=errors, limit=limit)

    def drain(self, *, errors: Errors = "raise", limit: int = LIMIT) -> list[JobRun]:
        """Run everything that waits, each job at its time, until nothing waits any more; returns what ran."""
        return self._play.run(until_us=None, errors=errors, limit=limit)

    async def arun_due(self, **options: Any) -> list[JobRun]:
        """Do as `run_due()`, from async code."""
        return await sync_to_async(self.run_due)(**options)

    async def aadvance(self, delay: float | timedelta | None = None, **options: Any) -> list[JobRun]:
        """Do as `advance()`, from async code."""
        return await sync_to_async(self.advance)(delay, **options)

    async def adrain(self, **options: Any) -> list[JobRun]:
        """Do as `drain()`, from async code."""
        return await sync_to_async(self.drain)(**options)

    @contextmanager
    def eager(self, *, honour_delays: bool = False, errors: Errors = "raise") -> Iterator[None]:
        """Run jobs where they are enqueued (inside a transaction: where it ends), before the call returns.

        Delays, also those between attempts, are skipped; with `honour_delays` delayed jobs wait for `advance()`, which
        runs them. What a task enqueues runs after it.
        """

        def sent(handles: Sequence[JobHandle]) -> None:
            if self._eager is not sent:
                # An eager mode inside this one has its own way.
                return
            if not honour_delays:
                self._play.skip_delay(handles)
            if not self._play.runs:
                self._play.run(until_us=0, errors=errors, limit=LIMIT)

        before, self._eager = self._eager, sent
        try:
            with runtime.override(on_sent=(*runtime.current().on_sent, sent)):
                yield
        finally:
            self._eager = before

    def unavailable(self) -> AbstractContextManager[None]:
        """Let Redis be out of reach inside: whoever enqueues gets `StoreUnavailable` at once."""
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
        """Assert that a job of the task waits, with what is named here; returns it (the first of several).

        `due_in`: seconds or timedelta from now, to the second. `count`: so many of them, no more. Raises
        AssertionError, which shows the nearest job.
        """
        __tracebackhide__ = True
        if count is not None and count < 1:
            raise ValueError("count must be at least 1; for none there is assert_not_enqueued()")
        wanted = {"args": args, "kwargs": kwargs, "queue": queue, "priority": priority, "key": key}
        wish, jobs, found = self._look(task, due_in=due_in, due=due, **wanted)
        if not found:
            raise AssertionError(f"Not enqueued: {wish}\n{wish.told_short(jobs)}{_hint()}")
        if count is not None and len(found) != count:
            shown = "\n    ".join(map(repr, found))
            raise AssertionError(f"Enqueued {len(found)} times instead of {count}: {wish}\n    {shown}{_hint()}")
        return found[0]

    def assert_not_enqueued(self, task: Any, **wanted: Any) -> None:
        """Assert that no job of the task waits with what is named; the keywords are those of `assert_enqueued()`."""
        __tracebackhide__ = True
        wish, _, found = self._look(task, **wanted)
        if found:
            shown = "\n    ".join(map(repr, found))
            raise AssertionError(f"Enqueued, and should not be: {wish}\n    {shown}")

    def _look(self, task: Any, **wanted: Any) -> tuple[ExpectedJob, list[EnqueuedJob], list[EnqueuedJob]]:
        took = timedelta(seconds=monotonic() - self._entered_at)
        wish, jobs = ExpectedJob.of(task, took=took, **{"args": None, "kwargs": None, **wanted}), self.enqueued
        return wish, jobs, [job for job in jobs if job.task == wish.task and not wish.mismatches(job)]


def _hint() -> str:
    if outbox.open_transactions():
        return "\nThis is inside transaction.atomic(): what is enqueued there is sent where it ends."
    return ""


class DelayQMixin:
    """Give every test of a case a queue of its own: `class SaleTests(DelayQMixin, TestCase)`.

    For SimpleTestCase, TestCase, TransactionTestCase and all that derive from them.
    """

    _delayq: DelayQ | None = None

    def setUp(self) -> None:
        """Enter the queue; the end of the test leaves it."""
        super().setUp()  # type: ignore[misc]
        assert isinstance(self, TestCase)
        self._delayq = self.enterContext(DelayQ())

    @property
    def delayq(self) -> DelayQ:
        """The queue of this test."""
        if self._delayq is None:
            raise DelayQError(
                "delayq is there from setUp() on: write DelayQMixin in front of the test case, "
                "and call super().setUp() in a setUp() of your own"
            )
        return self._delayq
