"""Outcomes: the outcome of an attempt that raised an exception, or of a job that expired. Nothing here raises."""

import asyncio
import traceback
from time import monotonic
from typing import Any

from django_delayq import runtime
from django_delayq.clock import SECOND_US, duration_us, moment, timedelta_of
from django_delayq.conf.settings import get_config
from django_delayq.exceptions import DeadLetterNow, DelayQError, InvalidDelay, RetryLater, Snooze
from django_delayq.job.job import Claim, Job
from django_delayq.job.outcome import Outcome, OutcomeKind
from django_delayq.job.retry import class_path, lineage_of
from django_delayq.processes import process_limits

#: Most characters of a traceback in an outcome; the stored one is shorter.
_MAX_ERROR = 64 * 1024


def outcome_of(task: Any, claim: Claim, job: Job, error: BaseException) -> Outcome:
    """Return the outcome of an attempt whose code raised this; `task` is None if it was not the task's code."""
    runtime.current().on_task_exception(error)
    if isinstance(error, RetryLater | Snooze):
        try:
            delay_us = _requested_us(error, claim, job)
        except (DelayQError, TypeError) as wrong:
            return failed(wrong, job)
        kind = OutcomeKind.SNOOZED if isinstance(error, Snooze) else OutcomeKind.RETRY_REQUESTED
        return Outcome(kind=kind, error=_text(error), delay_us=delay_us, exception=_path(error), raised=error)
    if isinstance(error, DeadLetterNow):
        return Outcome(kind=OutcomeKind.REJECTED, error=_text(error), exception=_path(error), raised=error)
    if task is not None and isinstance(error, TypeError):
        try:
            task.check_fit(job.args, job.kwargs)
        except TypeError as unfit:
            error_text = f"The stored arguments do not fit {job.task}: {unfit}"
            return Outcome(kind=OutcomeKind.ARGUMENTS_MISMATCH, error=error_text, exception=_path(unfit), raised=error)
    return failed(error, job)


def _requested_us(error: RetryLater | Snooze, claim: Claim, job: Job) -> int | None:
    """Return the delay that the task requests in µs, or None. Raises `DelayQError` and TypeError."""
    delay, until = error.delay, None
    if isinstance(error, Snooze):
        delay, until = timedelta_of(error.units, of="Snooze") if error.units else delay, error.until  # type: ignore[arg-type]
    elif delay is None:
        return None
    if until is None:
        _check_delay(delay, of=error)
    delay_us, due_us = get_config(job.backend).tasks.check_time(delay=delay, at=until, name="until")
    if due_us is None:
        return delay_us or 0
    # By Redis's clock: the time of the claim there, and the time that has passed here since.
    return max(0, due_us - claim.claimed_us - int((monotonic() - claim.received_at) * SECOND_US))


def _check_delay(delay: Any, *, of: RetryLater | Snooze) -> None:
    """Raise `InvalidDelay`, which says what the exception takes."""
    try:
        duration_us(delay, name="the delay")
    except InvalidDelay as wrong:
        takes = (
            "Snooze() takes seconds, a timedelta, keywords such as minutes=5, or until= for a moment"
            if isinstance(of, Snooze)
            else "RetryLater() takes seconds or a timedelta, then the reason; for a moment raise Snooze(until=…)"
        )
        raise type(wrong)(f"{wrong}; {takes}") from None


def _text(error: BaseException) -> str:
    # A subclass of str may run code of its own wherever it is used, even in the loop of the worker.
    return str.__str__(str(error))


def failed(error: BaseException, job: Job | None = None) -> Outcome:
    """Return the outcome of an attempt of the job that ended with this exception."""
    process_limits.restore_open_files()
    try:
        text = "".join(traceback.format_exception(error))
        if isinstance(error, asyncio.CancelledError):
            text = f"{text}The task was cancelled by code in its event loop, not by a time limit.\n"
    except BaseException as unprintable:
        # The exception's own __str__() or metaclass may raise anything, even SystemExit.
        text = f"{_path(error)} (its traceback cannot be printed: {_path(unprintable)})"
    lineage = _lineage(error) if job is not None and job.retry.has_rules else ()
    return Outcome(
        kind=OutcomeKind.FAILED,
        error=text[-_MAX_ERROR:],
        exception=_path(error),
        lineage=lineage,
        raised=error,
    )


def _lineage(error: BaseException) -> tuple[tuple[str, ...], ...]:
    try:
        return lineage_of(type(error))
    except BaseException:
        # Its metaclass raises.
        return ((_path(error),),)


def expired(claim: Claim) -> Outcome:
    """Return the outcome of a claim whose job has expired: none of its code ran."""
    error = f"The job expired at {moment(claim.expires_us or 0):%Y-%m-%d %H:%M:%S} UTC, before it could begin."
    return Outcome(kind=OutcomeKind.EXPIRED, error=error)


def _path(error: BaseException) -> str:
    try:
        return class_path(type(error))
    except BaseException:
        # Its metaclass raises, so bypass it.
        return str(type.__getattribute__(type(error), "__name__"))
