"""Context: the job that the running code belongs to, and what that code and its worker exchange."""

from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import islice
from time import monotonic
from typing import Any, Protocol, TypeVar

from django.db.models import QuerySet

from django_delayq.clock import moment
from django_delayq.exceptions import InvalidProgress
from django_delayq.job.job import Claim
from django_delayq.job.progress import Progress
from django_delayq.job.value import has_type
from django_delayq.logs import current_run
from django_delayq.recurring.rule import occurrences
from django_delayq.store.digests import schedule_id
from django_delayq.store.store import get_store

#: Seconds between two reports of `track()`: a loop of a million short rounds must not pay for each.
_TRACK_EVERY = 0.5
#: Most missed occurrences that are counted: one takes some 20 µs.
_MOST_MISSED = 10_000
T = TypeVar("T")


class RunLink(Protocol):
    """What the code of a run and its worker exchange while it runs. Used by any thread."""

    @property
    def should_stop(self) -> bool:
        """Whether the job was asked to stop."""

    def report_progress(self, progress: Progress) -> None:
        """Pass a progress on; it does not wait for Redis, and may drop a value that a later one replaces."""


@dataclass(frozen=True, slots=True, repr=False)
class CurrentJob:
    """The job of the running task."""

    _claim: Claim
    #: None if the runner supports neither progress nor stops.
    _link: RunLink | None = None

    @property
    def id(self) -> str:
        """The job's id."""
        return self._claim.id

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self._claim.attempt

    @property
    def recovered(self) -> bool:
        """Whether a crash, a lost lease or the stop of a worker cut the last run off: part of its work may be done."""
        return self._claim.attempts.recovered

    @property
    def due(self) -> datetime:
        """When the job was due; aware, UTC, to the millisecond."""
        return moment(self._claim.due_us)

    @property
    def queue(self) -> str:
        """The queue that it was claimed from."""
        return self._claim.queue

    @property
    def key(self) -> str | None:
        """The unique key of the job, if it has one."""
        return self._claim.job.key if self._claim.job else None

    @property
    def tenant(self) -> str | None:
        """The name of the job's tenant, if it has one."""
        return self._claim.job.tenant if self._claim.job else None

    @property
    def schedule(self) -> str | None:
        """The name of the recurring schedule that made the job; None for other jobs."""
        planned = self._claim.job and self._claim.job.occurrence
        return planned.schedule if planned else None

    @property
    def occurrence(self) -> datetime | None:
        """The occurrence of its recurring schedule for which it runs; aware, UTC.

        None for other jobs, and for one of `run_now()`.
        """
        planned = self._claim.job and self._claim.job.occurrence
        return None if not planned or planned.moment_us is None else moment(planned.moment_us)

    @property
    def missed(self) -> int:
        """How many later occurrences of its schedule had passed when this attempt began, up to 10,000; 0 without one.

        They are those of the rule that the schedule has now; 0 if it was deleted. The first read in an attempt takes a
        round trip. Raises `StoreError`.
        """
        job = self._claim.job
        if job is None or job.occurrence is None or job.occurrence.moment_us is None:
            return 0
        id = schedule_id(job.task, job.occurrence.schedule)
        return _missed(self._claim.lease, job.backend, job.shard, id, job.occurrence.moment_us, self._claim.claimed_us)

    @property
    def context(self) -> dict[str, Any]:
        """A copy of what middlewares put into the job at the enqueue."""
        return deepcopy(self._claim.job.context or {}) if self._claim.job else {}

    @property
    def should_stop(self) -> bool:
        """Whether somebody called `stop()` on the job: clean up and return, or raise. No round trip."""
        return self._link is not None and self._link.should_stop

    def progress(self, fraction: float, note: str = "") -> None:
        """Report how far the job is: `fraction` from 0 to 1, and a note of up to 500 characters.

        Does not wait. The worker stores the last value, twice a second at most; it is gone when the attempt ends.
        Raises `InvalidProgress`.
        """
        progress = Progress.checked(fraction, note)
        if self._link is not None:
            self._link.report_progress(progress)

    def track(self, items: Iterable[T], *, total: int | None = None) -> Iterator[T]:
        """Iterate over the items, and report after each how many of how many are done.

        The number comes from `total`, from `count()` of a queryset, else from `len()`. Raises `InvalidProgress` if
        there is none, or if `total` is no number of items.
        """
        if total is not None and (not has_type(total, int) or total < 0):
            raise InvalidProgress(
                f"total must be the number of items, a whole number of 0 or more, got {total!r:.80}; "
                f"leave it out if items has a len() or is a queryset"
            )
        return self._track(items, _size(items) if total is None else total)

    def __repr__(self) -> str:
        # Not the claim: the unique key may be personal, and the lease could be used to settle the job.
        task = self._claim.job.task if self._claim.job else "?"
        return f"<CurrentJob {self.id} {task} attempt {self.attempt}>"

    def _track(self, items: Iterable[T], total: int) -> Iterator[T]:
        report_at = 0.0
        for done, item in enumerate(items, 1):
            yield item
            if done == total or monotonic() >= report_at:
                # Rows may be added while the loop runs.
                self.progress(min(1.0, done / max(1, total)), f"{done:,} of {max(done, total):,}")
                report_at = monotonic() + _TRACK_EVERY


# A worker runs few jobs at a time, and each lease is of one attempt.
@lru_cache(maxsize=1_024)
def _missed(lease: bytes, backend: str | None, shard: int, id: bytes, occurrence_us: int, until_us: int) -> int:
    """Return how many occurrences of a schedule are after one and not after a moment, both µs since the epoch."""
    [stored] = get_store(backend).schedules(shard).find([id])
    if stored is None or stored.definition is None:
        return 0
    passed = occurrences(stored.definition.schedule, after_us=occurrence_us, until_us=until_us)
    return sum(1 for _ in islice(passed, _MOST_MISSED))


def _size(items: object) -> int:
    if isinstance(items, QuerySet):
        # len() would read all rows at once.
        return items.count()
    try:
        return len(items)  # type: ignore[arg-type]
    except TypeError as error:
        raise InvalidProgress(f"track() cannot know how many items {type(items).__name__} has; pass total=") from error


def set_current_run(claim: Claim, link: RunLink | None = None) -> None:
    """Set the claim that this context runs, and the link of its code to the worker."""
    current_run.set((claim, link))


def current_job() -> CurrentJob | None:
    """Return the job of the running task, or None if the task was called as a plain function."""
    current = current_run.get()
    return CurrentJob(*current) if current else None
