"""Task result: builds Django's TaskResult of a job in any state.

Its task is rebuilt from the stored values and not validated again. A look-up shows what was enqueued, even if QUEUES
has changed since.
"""

from dataclasses import fields
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

from django.utils.timezone import make_naive

from django_delayq.backend.compat import TaskError, TaskResult, TaskResultStatus
from django_delayq.conf.settings import sharing_alias, uses_time_zones
from django_delayq.exceptions import JobCancelled, JobDropped, JobExpired
from django_delayq.job.attempts import AttemptHistory
from django_delayq.job.ids import created_us
from django_delayq.job.job import Job, State
from django_delayq.job.outcome import error_class
from django_delayq.job.result import Result
from django_delayq.job.retry import class_path
from django_delayq.store.queries.job_pages import JobRow

#: Characters of a worker's id at most, by Django's contract.
_LONGEST_ID = 64
_EPOCH = datetime(1970, 1, 1)
#: UTC and the zones farthest from it: the first and last datetimes of a zone may not exist in UTC.
_ZONES = (UTC, timezone(timedelta(hours=-23, minutes=-59)), timezone(timedelta(hours=23, minutes=59)))
#: The error of a job that never ran.
_ERROR_OF_STATE = {State.CANCELLED: JobCancelled, State.EXPIRED: JobExpired, State.DROPPED: JobDropped}


def alias_of(job: Job) -> str | None:
    """Return the alias in TASKS that a job was enqueued with."""
    return job.backend if job.backend is not None else sharing_alias()


def task_of(source: Any, job: Job) -> Any:
    """Return a copy of Django's task with the options that this job was enqueued with."""
    stored = {
        "priority": job.priority,
        "queue_name": job.queue,
        "run_after": None if job.run_after_us is None else datetime_of(job.run_after_us),
        "backend": alias_of(job),
    }
    task = object.__new__(type(source))
    for field in fields(source):
        object.__setattr__(task, field.name, stored.get(field.name, getattr(source, field.name)))
    return task


def datetime_of(us: int) -> datetime:
    """Return the datetime of µs since the epoch: aware, or naive and local without USE_TZ; clipped to its range."""
    moment = next(filter(None, (_in_zone(us, zone) for zone in _ZONES)), None)
    if moment is None:
        moment = datetime.max.replace(tzinfo=UTC) if us > 0 else datetime.min.replace(tzinfo=UTC)
    if uses_time_zones():
        return moment
    try:
        return make_naive(moment)
    except OverflowError:
        return datetime.max if us > 0 else datetime.min


def _in_zone(us: int, zone: tzinfo) -> datetime | None:
    offset = zone.utcoffset(None) or timedelta(0)
    try:
        return (_EPOCH + (timedelta(microseconds=us) + offset)).replace(tzinfo=zone)
    except OverflowError:
        return None


def ready_result(source: Any, job: Job, *, attempts: AttemptHistory) -> Any:
    """Return the result of a job that is scheduled or ready, also for another attempt."""
    return _build(source, job, TaskResultStatus.READY, attempts)


def running_result(source: Any, job: Job, *, attempts: AttemptHistory, worker: str, started_us: int) -> Any:
    """Return the result of a claimed job; `started_us` is in µs since the epoch."""
    return _build(source, job, TaskResultStatus.RUNNING, attempts, runs=[(worker, started_us)])


def failed_result(source: Any, job: Job, *, attempts: AttemptHistory, died_us: int | None = None) -> Any:
    """Return the result of a dead letter; `died_us` stands in if the last attempt has no end."""
    last_us = next((entry.get("ended_us") for entry in attempts.history[-1:]), None) or died_us
    return _build(source, job, TaskResultStatus.FAILED, attempts, finished_us=last_us)


def finished_result(source: Any, job: Job, *, attempts: AttemptHistory, result: Result) -> Any:
    """Return the stored result of a job that is done, cancelled, expired or dropped."""
    runs = [] if result.started_us is None else [(result.worker, result.started_us)]
    status = TaskResultStatus.SUCCESSFUL if result.state is State.DONE else TaskResultStatus.FAILED
    built = _build(source, job, status, attempts, runs=runs, finished_us=result.ended_us)
    object.__setattr__(built, "_return_value", result.value)
    if error := _ERROR_OF_STATE.get(result.state):
        text = f"{error.__qualname__}: {error.__doc__}"
        built.errors.append(TaskError(exception_class_path=class_path(error), traceback=text))
    return built


def found_result(source: Any, found: JobRow) -> Any:
    """Return the result of a job that was looked up, or None if it has none."""
    job, attempts = found.job, found.attempts
    if job is None:
        return None
    if found.result is not None:
        return finished_result(source, job, attempts=attempts, result=found.result)
    match found.state:
        case State.SCHEDULED | State.READY:
            return ready_result(source, job, attempts=attempts)
        case State.CLAIMED:
            return running_result(source, job, attempts=attempts, worker=found.worker, started_us=found.claimed_us or 0)
        case State.DEAD:
            return failed_result(source, job, attempts=attempts, died_us=found.moment_us)
    return None


def _build(
    source: Any,
    job: Job,
    status: TaskResultStatus,
    attempts: AttemptHistory,
    *,
    runs: list[tuple[str, int]] | None = None,
    finished_us: int | None = None,
) -> Any:
    # `enqueued_us` is by the clock of the enqueueing process, the others by Redis's. No later event may seem earlier.
    enqueued_us, history = created_us(job.raw_id), attempts.history
    starts = [(entry.get("worker", ""), max(entry.get("started_us", 0), enqueued_us)) for entry in history]
    starts += [(worker, max(started_us, enqueued_us)) for worker, started_us in runs or ()]
    # The history has no records of the oldest of very many attempts.
    forgotten = max(0, attempts.ended - len(history))
    starts_us = [started_us for _, started_us in starts]
    return TaskResult(
        task=task_of(source, job),
        id=job.id,
        status=status,
        enqueued_at=datetime_of(enqueued_us),
        started_at=datetime_of(starts_us[0]) if starts_us else None,
        finished_at=None if finished_us is None else datetime_of(max(finished_us, enqueued_us, *starts_us[-1:])),
        last_attempted_at=datetime_of(starts_us[-1]) if starts_us else None,
        args=job.args,
        kwargs=job.kwargs,
        backend=str(alias_of(job)),
        errors=[_error(entry) for entry in history],
        worker_ids=["?"] * forgotten + [(worker or "?")[-_LONGEST_ID:] for worker, _ in starts],
    )


def _error(entry: dict[str, Any]) -> TaskError:
    path = entry.get("exception") or class_path(error_class(entry.get("ending", "")))
    return TaskError(exception_class_path=path, traceback=entry.get("error", ""))
