"""Options: convert the options of tasks that take several kinds of values, and check them."""

from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

from django_delayq.clock import LATEST_US, duration_us, moment_us
from django_delayq.exceptions import DelayTypeError, DelayValueError

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
    span_us = duration_us(expires, name=name)
    if not 0 < span_us <= LATEST_US:
        raise DelayValueError(
            f"{name} must be more than 0 seconds after the due time, and before the year 2255; "
            f"leave it out for a job that never expires"
        )
    return ExpiryTimes(span_us=span_us)
