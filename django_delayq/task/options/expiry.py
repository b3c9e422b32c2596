"""Expiry: the `expires` of a task, and the expiry of a job made from it."""

from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

from django_delayq import runtime
from django_delayq.clock import LATEST_US, duration_us, estimated_us, moment, moment_us
from django_delayq.exceptions import DelayTypeError, DelayValueError, InvalidMoment
from django_delayq.job.job import Expiry

#: Seconds or a timedelta after the due time, or an aware datetime.
Expires = float | timedelta | datetime
#: What becomes of an expired job: it ends as expired, or as a dead letter.
OnExpiry = Literal["drop", "dead"]


class ExpiryTimes(NamedTuple):
    """The `expires` of a task: µs after the due time, or µs since the epoch. The other one is None."""

    span_us: int | None = None
    moment_us: int | None = None


def expiry_times(expires: Any, *, name: str = "expires") -> ExpiryTimes:
    """Convert `expires`: seconds or a timedelta after the due time, or an aware datetime.

    Raises `DelayTypeError`, `DelayValueError` and `InvalidMoment`, with the argument's `name`.
    """
    if isinstance(expires, datetime):
        return ExpiryTimes(moment_us=moment_us(expires, name=name))
    if isinstance(expires, bool) or not isinstance(expires, int | float | timedelta):
        raise DelayTypeError(
            f"{name} must be a number of seconds, a timedelta, or an aware datetime, got {type(expires).__name__}"
        )
    if expires < timedelta() if isinstance(expires, timedelta) else expires < 0:
        raise DelayValueError(
            f"{name} must not be negative: it counts from the due time; leave it out for a job that never expires"
        )
    span_us = duration_us(expires, name=name)
    if not 0 < span_us <= LATEST_US:
        raise DelayValueError(
            f"{name} must be more than 0 seconds after the due time, and before the year 2255; "
            f"leave it out for a job that never expires"
        )
    return ExpiryTimes(span_us=span_us)


def make_expiry(task: Any, expires: ExpiryTimes, due_us: int | None) -> Expiry:
    """Return the expiry of a job that is made now; the moment of a span is computed again when the job is sent.

    `due_us` is its due time in µs since the epoch, None for the delay of the task. Raises `InvalidMoment` if the job
    would have expired when it is due.
    """
    now_us = estimated_us(runtime.current().clock)
    due_us = now_us + (task.wait_us or 0) if due_us is None else max(now_us, due_us)
    if expires.moment_us is not None and expires.moment_us <= due_us:
        raise InvalidMoment(
            f"expires must be later than the due time, {moment(due_us)}, got {moment(expires.moment_us)}: "
            f"such a job of {task.name} could never begin"
        )
    dead = task.on_expiry == "dead"
    return Expiry(moment_us=expires.moment_us or 0, span_us=expires.span_us, dead=dead).from_due(due_us)
