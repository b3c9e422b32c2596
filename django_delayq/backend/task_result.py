"""TaskResult: what Django's tasks framework is told of a job, wherever the job is.

Tasks are rebuilt with what is stored and not validated again: a look-up says what was enqueued, also where QUEUES has
changed since.
"""

from dataclasses import fields
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

from django.utils.timezone import make_naive

from django_delayq.backend.compat import TaskError, TaskResult, TaskResultStatus
from django_delayq.conf.settings import sharing_alias, uses_time_zones
from django_delayq.exceptions import JobCancelled
from django_delayq.job.attempts import AttemptHistory
from django_delayq.job.ids import created_us
from django_delayq.job.job import Job, State
from django_delayq.job.outcome import OutcomeKind
from django_delayq.job.result import Result

#: Longest id of a worker that the contract has.
_LONGEST_ID = 64
_EPOCH = datetime(1970, 1, 1)
#: Zones as far from UTC as there are: the first and last moments of other calendars are none of UTC's.
_ZONES = (UTC, timezone(timedelta(hours=-23, minutes=-59)), timezone(timedelta(hours=23, minutes=59)))
#: What stands for an ending that no exception of the task made.
_CLASSES = {
    OutcomeKind.UNKNOWN_TASK: "UnknownTask",
    OutcomeKind.NEWER: "NewerBody",
    OutcomeKind.UNREADABLE: "BadBody",
    OutcomeKind.BAD_SIGNATURE: "BadSignature",
}


def alias_of(job: Job) -> str | None:
    """Return the alias in TASKS that a job was enqueued with."""
    return job.backend if job.backend is not None else sharing_alias()


def task_of(source: Any, job: Job) -> Any:
    """Return Django's task as it was when this job was enqueued."""
    stored = {
        "priority": job.priority,
        "queue_name": job.queue,
        "run_after": None if job.run_after_us is None else at(job.run_after_us),
        "backend": alias_of(job),
    }
    task = object.__new__(type(source))
    for field in fields(source):
        object.__setattr__(task, field.name, stored.get(field.name, getattr(source, field.name)))
    return task


def at(us: int) -> datetime:
    """Return µs since the epoch as this project has its datetimes: aware, or naive local ones without USE_TZ."""
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
    """Return the result of a job that waits: for its time, a worker, or another attempt."""
    return _made(source, job, TaskResultStatus.READY, attempts)


def running_result(source: Any, job: Job, *, attempts: AttemptHistory, worker: str, started_us: int) -> Any:
    """Return the result of a job that a worker has."""
    return _made(source, job, TaskResultStatus.RUNNING, attempts, runs=[(worker, started_us)])


def failed_result(source: Any, job: Job, *, attempts: AttemptHistory, died_us: int | None = None) -> Any:
    """Return the result of a dead letter."""
    last_us = next((entry.get("ended_us") for entry in attempts.history[-1:]), None) or died_us
    return _made(source, job, TaskResultStatus.FAILED, attempts, finished_us=last_us)


def finished_result(source: Any, job: Job, *, attempts: AttemptHistory, result: Result) -> Any:
    """Return the kept result of a job that is done, or was cancelled."""
    runs = [] if result.started_us is None else [(result.worker, result.started_us)]
    status = TaskResultStatus.SUCCESSFUL if result.state is State.DONE else TaskResultStatus.FAILED
    made = _made(source, job, status, attempts, runs=runs, finished_us=result.ended_us)
    object.__setattr__(made, "_return_value", result.value)
    if result.state is State.CANCELLED:
        text = f"{JobCancelled.__qualname__}: {JobCancelled.__doc__}"
        made.errors.append(TaskError(exception_class_path=_ours(JobCancelled.__qualname__), traceback=text))
    return made


def _made(
    source: Any,
    job: Job,
    status: TaskResultStatus,
    attempts: AttemptHistory,
    *,
    runs: list[tuple[str, int]] | None = None,
    finished_us: int | None = None,
) -> Any:
    # The id's clock is its maker's, all others are Redis's: what came later must not seem to be earlier.
    enqueued_us, history = created_us(job.raw_id), attempts.history
    told = [(entry.get("worker", ""), max(entry.get("started_us", 0), enqueued_us)) for entry in history]
    told += [(worker, max(started_us, enqueued_us)) for worker, started_us in runs or ()]
    # Of the oldest of very many attempts only their number is known.
    forgotten = max(0, attempts.ended - len(history))
    starts_us = [started_us for _, started_us in told]
    return TaskResult(
        task=task_of(source, job),
        id=job.id,
        status=status,
        enqueued_at=at(enqueued_us),
        started_at=at(starts_us[0]) if starts_us else None,
        finished_at=None if finished_us is None else at(max(finished_us, enqueued_us, *starts_us[-1:])),
        last_attempted_at=at(starts_us[-1]) if starts_us else None,
        args=job.args,
        kwargs=job.kwargs,
        backend=str(alias_of(job)),
        errors=[_error(entry) for entry in history],
        worker_ids=["?"] * forgotten + [(worker or "?")[-_LONGEST_ID:] for worker, _ in told],
    )


def _error(entry: dict[str, Any]) -> TaskError:
    ending = entry.get("ending", "")
    path = entry.get("exception") or _ours(_CLASSES.get(ending, "JobCrashed"))
    return TaskError(exception_class_path=path, traceback=entry.get("error", ""))


def _ours(name: str) -> str:
    return f"{JobCancelled.__module__}.{name}"
