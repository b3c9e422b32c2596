"""Job: what middlewares see of a job, at its enqueue and at each run, and the calls that their chain wraps."""

from collections.abc import Awaitable, Callable, Mapping
from copy import deepcopy
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from django_delayq.clock import moment
from django_delayq.job.ids import created_us
from django_delayq.job.job import Job
from django_delayq.middleware.enqueue_batch import EnqueueBatch
from django_delayq.recurring.schedule import Schedule


class MiddlewareJob:
    """The job as a middleware sees it. Only `context` can be changed, and only before `next.enqueue(job)`."""

    __slots__ = (
        *("_acall", "_call", "_find_schedule", "_job", "_times_us", "_will_retry"),
        *("attempt", "batch", "context"),
    )

    def __init__(
        self,
        job: Job,
        call: Callable[[], Any],
        acall: Callable[[], Awaitable[Any]] | None = None,
        *,
        attempt: int | None = None,
        times_us: tuple[int, int] | None = None,
        batch: EnqueueBatch | None = None,
        will_retry: Callable[[BaseException], bool] | None = None,
        find_schedule: Callable[[], Schedule | None] | None = None,
    ) -> None:
        """`call` does what the chain is wrapped around; `acall` does it in an event loop, if that differs.

        `times_us` are those of an attempt: when it was due and when it was claimed, in µs of Redis's clock.
        """
        self._job, self._call, self._acall = job, call, acall
        self._will_retry, self._find_schedule = will_retry, find_schedule
        self._times_us = times_us
        #: The call of `task.enqueue_many()` that makes the job; None for other jobs, and at the run.
        self.batch = batch
        #: The number of the attempt, from 1; None at the enqueue.
        self.attempt = attempt
        #: A dict of JSON values that travels in the job, at most 4 KiB. In `run()` it is a copy.
        self.context: dict[str, Any] = deepcopy(job.context) if job.context else {}

    @property
    def id(self) -> str:
        """The id of the job, already known at the enqueue."""
        return self._job.id

    @property
    def task(self) -> str:
        """The name of the task."""
        return self._job.task

    @property
    def queue(self) -> str:
        """The name of the queue."""
        return self._job.queue

    @property
    def priority(self) -> int:
        """The priority, −100 to 100; a larger one runs first."""
        return self._job.priority

    @property
    def key(self) -> str | None:
        """The unique key, if the job has one."""
        return self._job.key

    @property
    def args(self) -> tuple[Any, ...]:
        """A copy of the positional arguments."""
        return tuple(deepcopy(self._job.args))

    @property
    def kwargs(self) -> Mapping[str, Any]:
        """A copy of the keyword arguments."""
        return MappingProxyType(deepcopy(self._job.kwargs))

    @property
    def enqueued(self) -> datetime:
        """When the job was made, aware, in UTC, by the clock of the process that made it."""
        return moment(created_us(self._job.raw_id))

    @property
    def due(self) -> datetime | None:
        """When this attempt was due, aware, in UTC; None at the enqueue."""
        return None if self._times_us is None else moment(self._times_us[0])

    @property
    def late(self) -> timedelta | None:
        """How long after its due time a worker claimed this attempt; None at the enqueue."""
        if self._times_us is None:
            return None
        due_us, claimed_us = self._times_us
        # The due time is known to the millisecond.
        return timedelta(microseconds=max(0, claimed_us - due_us))

    @property
    def schedule(self) -> str | None:
        """The name of the recurring schedule that made the job, among those of its task; None for other jobs."""
        return self._job.occurrence.schedule if self._job.occurrence else None

    @property
    def occurrence(self) -> datetime | None:
        """The occurrence for which the job runs, aware, in UTC; None for other jobs, and for those of `run_now()`."""
        found = self._job.occurrence
        return moment(found.moment_us) if found and found.moment_us is not None else None

    def will_retry(self, error: BaseException) -> bool:
        """Return whether another attempt follows this one, if it ends with that exception; False at the enqueue."""
        return self._will_retry is not None and self._will_retry(error)

    def find_schedule(self) -> Schedule | None:
        """Return the recurring schedule of the job as it is now; None if there is none, or at the enqueue.

        One round trip, so not in an event loop. Raises `StoreError`.
        """
        return None if self._find_schedule is None else self._find_schedule()

    def __repr__(self) -> str:
        # Without arguments and context: error reports show the variables of middlewares.
        return f"<MiddlewareJob {self.id} of {self.task}>"


def call_job(job: MiddlewareJob) -> Any:
    """Do what the chain is wrapped around. Raises TypeError for another object than the job."""
    return _own(job)._call()


async def acall_job(job: MiddlewareJob) -> Any:
    """Do what `call_job()` does in an event loop."""
    job = _own(job)
    return job._call() if job._acall is None else await job._acall()


def _own(job: Any) -> MiddlewareJob:
    if not isinstance(job, MiddlewareJob):
        raise TypeError(
            f"a middleware passed {type(job).__name__} on; next.enqueue() and next.run() take the job that it received"
        )
    return job
