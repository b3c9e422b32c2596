"""Job views: jobs as tests see them, with a `repr()` for error messages."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django_delayq.clock import moment
from django_delayq.job.attempts import NO_ATTEMPTS
from django_delayq.job.job import Claim, Job, State
from django_delayq.job.outcome import Action, Decision, Outcome, OutcomeKind
from django_delayq.job.progress import Progress
from django_delayq.store.queries.job_pages import JobRow
from django_delayq.store.queries.lookup import MAX_ROWS
from django_delayq.store.shard import Shard
from django_delayq.store.store import Store
from django_delayq.task import registry
from django_delayq.task.context import CurrentJob

_NOW = timedelta(seconds=1)
#: Most characters of an argument in a `repr()`.
_MAX_SHOWN = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class EnqueuedJob:
    """A job that waits or is dead, at the time of the look-up."""

    #: Id of the job, as `JobHandle.id`.
    id: str
    #: The name of the task: the import path of its function, by default.
    task: str
    #: Its positional arguments.
    args: list[Any]
    #: Its keyword arguments.
    kwargs: dict[str, Any]
    #: Name of its queue.
    queue: str
    #: -100 to 100; a larger one runs first.
    priority: int
    #: Its unique key; None if it has none.
    key: str | None
    #: scheduled, ready, or dead.
    state: State
    #: When it is or became due; aware, UTC. None if it is dead.
    due: datetime | None
    #: The same as a difference from now; negative if it is past.
    due_in: timedelta | None
    #: Number of the attempt it waits for, from 1; if it is dead, the number of its attempts.
    attempt: int
    #: When it expires if it has not begun by then; aware, UTC. None: never.
    expires: datetime | None = None
    #: What middlewares put into it at the enqueue.
    context: dict[str, Any] = field(default_factory=dict, repr=False)
    #: The end of the traceback of the last failed attempt.
    error: str = field(default="", repr=False)

    @classmethod
    def of(cls, row: JobRow, job: Job | None, *, now_us: int) -> "EnqueuedJob":
        """Return the view of a row; a job that cannot be read has no arguments."""
        due_us = row.due_us
        return cls(
            id=row.id,
            task=row.task,
            args=list(job.args) if job else [],
            kwargs=dict(job.kwargs) if job else {},
            queue=row.queue,
            priority=row.head.priority,
            key=job.key if job else None,
            state=row.state,
            due=None if due_us is None else moment(due_us),
            due_in=None if due_us is None else timedelta(microseconds=due_us - now_us),
            attempt=row.attempts.ended + (row.state is not State.DEAD),
            expires=moment(job.expiry.moment_us) if job and job.expiry else None,
            context=dict(job.context or {}) if job else {},
            error=row.attempts.last_error,
        )

    def __repr__(self) -> str:
        words = [f"{call(self.task, self.args, self.kwargs)} {self._when} in queue {self.queue!r}"]
        words += [f"priority {self.priority}"] if self.priority else []
        words += [f"key {self.key!r}"] if self.key is not None else []
        words += [f"attempt {self.attempt}"] if self.attempt > 1 else []
        return f"<{', '.join(words)}>"

    @property
    def _when(self) -> str:
        if self.due_in is None:
            return "dead"
        return "due now" if self.due_in < _NOW else f"due in {span(self.due_in)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRun:
    """One attempt that ran in a test, or a job that expired when its turn came."""

    #: Id of the job, as `JobHandle.id`.
    id: str
    #: The name of its task.
    task: str
    #: Its positional arguments.
    args: list[Any]
    #: Its keyword arguments.
    kwargs: dict[str, Any]
    #: Name of its queue.
    queue: str
    #: From 1.
    attempt: int
    #: The name of the recurring schedule that made it; None: it has none.
    schedule: str | None = None
    #: The occurrence for which it was made; aware, UTC. None: it has none.
    occurrence: datetime | None = None
    #: How the attempt ended, for example "succeeded" or "failed".
    ending: OutcomeKind
    #: The end of a traceback, or a sentence; empty after success.
    error: str = field(default="", repr=False)
    #: The delay of the next attempt; None if there is none.
    retry_in: timedelta | None = None
    #: What it reported by `progress()` and `track()`, oldest first.
    progress: list[Progress] = field(default_factory=list, repr=False)
    #: It became a dead letter.
    dead: bool = False

    @classmethod
    def of(cls, claim: Claim, outcome: Outcome, decision: Decision, *, progress: Sequence[Progress] = ()) -> "JobRun":
        """Return the view of an attempt that was settled."""
        job, current = claim.job, CurrentJob(claim)
        again = decision.action is Action.RETRY
        return cls(
            id=claim.id,
            task=job.task if job else "",
            args=list(job.args) if job else [],
            kwargs=dict(job.kwargs) if job else {},
            queue=claim.queue,
            attempt=claim.attempt,
            schedule=current.schedule,
            occurrence=current.occurrence,
            ending=outcome.kind,
            error=outcome.error,
            retry_in=timedelta(microseconds=decision.delay_us) if again else None,
            progress=list(progress),
            dead=decision.action is Action.DEAD_LETTER,
        )

    def __repr__(self) -> str:
        dead = ", dead" if self.dead else ""
        again = f", again in {span(self.retry_in)}" if self.retry_in is not None else dead
        number = f", attempt {self.attempt}" if self.attempt > 1 else ""
        return f"<{call(self.task, self.args, self.kwargs)} {self.ending}{number}{again}>"


def shown(task: str, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return arguments with the sensitive ones hidden."""
    known = registry.find(task)
    return (list(args), kwargs) if known is None else known.redact_arguments(args, kwargs)


def call(task: str, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    """Return a call as Python code, with the sensitive arguments hidden."""
    args, kwargs = shown(task, args, kwargs)
    words = [*map(_short, args), *(f"{name}={_short(value)}" for name, value in kwargs.items())]
    return f"{task}({', '.join(words)})"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def span(time: timedelta) -> str:
    """Return a time as text: "2 d 3 h", "10 min", "1.5 s"; with "-" in front if it is negative."""
    exact = abs(time.total_seconds())
    # Rounded: a little less than an hour is an hour, because the test took a moment.
    seconds: float = round(exact, 1) if exact < 59.5 else round(exact)
    words = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        number, seconds = divmod(seconds, size)
        words += [f"{number:g} {unit}"] if number else []
    words += [f"{seconds:g} s"] if seconds or not words else []
    return ("-" if time < timedelta(0) else "") + " ".join(words)


def waiting(stores: Sequence[Store], *, now_us: int) -> list[EnqueuedJob]:
    """Return all jobs that wait, in the order in which they will run."""
    return [*_views(stores, State.READY, now_us), *_views(stores, State.SCHEDULED, now_us)]


def dead(stores: Sequence[Store], *, now_us: int) -> list[EnqueuedJob]:
    """Return all dead letters, oldest first."""
    return _views(stores, State.DEAD, now_us)


def next_due_us(stores: Sequence[Store], *, planted: bool = True) -> int | None:
    """Return when the next job becomes due, is let in, or the next pause ends (µs since the epoch), or None.

    `planted`: jobs count that recurring schedules have planted and that have not begun.
    """
    due = [
        row.moment_us
        for store in stores
        for shard in store.shards
        if (row := _first_scheduled(store, shard, planted=planted)) is not None
    ]
    pauses = [
        state.paused.until_us
        for store in stores
        for shard in store.shards
        for state in store.dashboard(shard.index).snapshot().queues.values()
        if state.paused and state.paused.until_us is not None
    ]
    limits = [store.limits(shard.index).next_open_us() for store in stores for shard in store.shards]
    return min([*due, *pauses, *(opens_us for opens_us in limits if opens_us is not None)], default=None)


def _first_scheduled(store: Store, shard: Shard, *, planted: bool) -> JobRow | None:
    if planted:
        return next(
            iter(store.lookup(shard.index).page(State.SCHEDULED, queues=shard.read_queues(), count=1).rows), None
        )
    rows = _rows_of_shard(store, shard, State.SCHEDULED)
    return next((row for row in rows if not _is_planted(row, _job(store, row))), None)


def _is_planted(row: JobRow, job: Job | None) -> bool:
    is_of_occurrence = job is not None and job.occurrence is not None and job.occurrence.moment_us is not None
    return is_of_occurrence and row.attempts == NO_ATTEMPTS


def next_planting_us(stores: Sequence[Store]) -> int | None:
    """Return when the next job of a recurring schedule is planted (µs since the epoch), or None."""
    found = [store.schedules(shard.index).next_planting_us() for store in stores for shard in store.shards]
    return min((planting_us for planting_us in found if planting_us is not None), default=None)


def _views(stores: Sequence[Store], state: State, now_us: int) -> list[EnqueuedJob]:
    found = [(row, store) for store in stores for row in _rows(store, state)]
    found.sort(key=lambda pair: pair[0].cursor)
    return [EnqueuedJob.of(row, _job(store, row), now_us=now_us) for row, store in found]


def _job(store: Store, row: JobRow) -> Job | None:
    """Return the job of a row; a page has only the beginning of a long body."""
    if not row.is_cut:
        return row.job
    return store.lookup(row.shard).find(row.raw_id, queue=row.queue, member=row.member).job


def _rows(store: Store, state: State) -> Iterator[JobRow]:
    for shard in store.shards:
        yield from _rows_of_shard(store, shard, state)


def _rows_of_shard(store: Store, shard: Shard, state: State) -> Iterator[JobRow]:
    queues, cursor = shard.read_queues(), None
    while True:
        page = store.lookup(shard.index).page(state, queues=queues, cursor=cursor, count=MAX_ROWS)
        yield from page.rows
        cursor = page.end
        if cursor is None:
            return
