"""Outcomes: the outcome of an attempt that raised an exception, or of a job that expired. Nothing here raises."""

import asyncio
from textwrap import indent
from time import monotonic
from typing import Any

from django_delayq import runtime
from django_delayq.clock import SECOND_US, duration_us, moment, timedelta_of
from django_delayq.conf.settings import get_config
from django_delayq.exceptions import DeadLetterNow, DelayQError, InvalidDelay, RetryLater, Snooze, see
from django_delayq.job.errors.error_text import cut_error
from django_delayq.job.errors.exception_text import path_of, text_of, traceback_of
from django_delayq.job.job import Claim, Job
from django_delayq.job.outcome import Outcome, OutcomeKind
from django_delayq.job.retry import lineage_of
from django_delayq.processes import process_limits

#: Most bytes of a traceback in an outcome, as JSON; the stored one is shorter.
_MAX_ERROR = 64 * 1024
#: What a task raises to ask for something. None of them says why its work failed, unless it has a reason.
REQUESTS = (RetryLater, Snooze, DeadLetterNow)
_NO_REASON = str(DeadLetterNow())


def outcome_of(task: Any, claim: Claim, job: Job, error: BaseException) -> Outcome:
    """Return the outcome of an attempt whose code raised this; `task` is None if it was not the task's code."""
    runtime.current().on_task_exception(error)
    return judged(task, claim, job, error)


def judged(task: Any, claim: Claim, job: Job, error: BaseException) -> Outcome:
    """Return what `outcome_of()` returns, while the middlewares still run."""
    if isinstance(error, RetryLater | Snooze):
        try:
            delay_us = _requested_us(error, claim, job)
        except (DelayQError, TypeError) as wrong:
            return failed(wrong, job)
        if isinstance(error, Snooze):
            kind, text = OutcomeKind.SNOOZED, text_of(error)
            return Outcome(kind=kind, error=text, delay_us=delay_us, exception=path_of(error), raised=_behind(error))
        return _requested(OutcomeKind.RETRY_REQUESTED, error, delay_us)
    if isinstance(error, DeadLetterNow):
        return _requested(OutcomeKind.REJECTED, error)
    if task is not None and isinstance(error, TypeError):
        try:
            task.check_fit(job.args, job.kwargs)
        except TypeError as unfit:
            error_text = (
                f"The stored arguments do not fit {job.task}: {unfit}; give new parameters a default, or restart a "
                f"worker with old code. {see('troubleshooting#the-arguments-do-not-fit')}"
            )
            return Outcome(
                kind=OutcomeKind.ARGUMENTS_MISMATCH, error=error_text, exception=path_of(unfit), raised=error
            )
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


def _requested(kind: OutcomeKind, error: RetryLater | DeadLetterNow, delay_us: int | None = None) -> Outcome:
    """Return the outcome of a request. If an exception is behind it, that exception says why the work failed.

    But the reason of a `DeadLetterNow` stays the message, with the chain of exceptions as its traceback.
    """
    shown, text = _behind(error), text_of(error)
    if shown is None:
        return Outcome(kind=kind, error=text, delay_us=delay_us, exception=path_of(error), raised=error)
    if kind is OutcomeKind.REJECTED and text != _NO_REASON:
        shown, text = error, _traceback(error)
    else:
        # The request comes first, because an error that is too long loses its start; indented, so that no line of its
        # reason looks like the exception.
        text = f"{indent(_traceback(error, chain=False), '    ')}\nThe exception behind it:\n\n{_traceback(shown)}"
    return Outcome(kind=kind, error=_cut(text, shown), delay_us=delay_us, exception=path_of(shown), raised=shown)


def _behind(error: BaseException) -> BaseException | None:
    """Return the exception that a request was raised from, or while it was handled; None if there is none."""
    found, seen = error, set[int]()
    while isinstance(found, REQUESTS):
        seen.add(id(found))
        cause = found.__cause__
        if cause is None and not found.__suppress_context__:
            cause = found.__context__
        if cause is None or id(cause) in seen:
            return None
        found = cause
    return found


def failed(error: BaseException, job: Job | None = None) -> Outcome:
    """Return the outcome of an attempt of the job that ended with this exception."""
    text = _traceback(error)
    if isinstance(error, asyncio.CancelledError):
        text = f"{text}The task was cancelled by code in its event loop, not by a time limit.\n"
    lineage = _lineage(error) if job is not None and job.retry.has_rules else ()
    return Outcome(
        kind=OutcomeKind.FAILED,
        error=_cut(text, error),
        exception=path_of(error),
        lineage=lineage,
        raised=error,
    )


def _traceback(error: BaseException, *, chain: bool = True) -> str:
    process_limits.restore_open_files()
    return traceback_of(error, chain=chain)


def _cut(text: str, error: BaseException) -> str:
    return cut_error(text, _MAX_ERROR, exception=path_of(error))


def _lineage(error: BaseException) -> tuple[tuple[str, ...], ...]:
    try:
        return lineage_of(type(error))
    except BaseException:
        # Its metaclass raises.
        return ((path_of(error),),)


def expired(claim: Claim) -> Outcome:
    """Return the outcome of a claim whose job has expired: none of its code ran."""
    error = f"The job expired at {moment(claim.expires_us or 0):%Y-%m-%d %H:%M:%S} UTC, before it could begin."
    return Outcome(kind=OutcomeKind.EXPIRED, error=error)
