"""Clock: time as the engine counts it, in integer microseconds since the epoch.

Redis decides what time it is; a script asks its own server. Only tests hand in a number instead. Durations and moments
of users are turned into microseconds here and nowhere else.
"""

import time
from datetime import UTC, datetime, timedelta
from math import ceil, isfinite
from time import monotonic
from typing import Any, Protocol, TypedDict

from django_delayq.exceptions import DelayTypeError, DelayValueError, InvalidMoment

SECOND_US = 1_000_000
HOUR_US, DAY_US = 3_600 * SECOND_US, 86_400 * SECOND_US
#: The latest due time there is, in the year 2255: a later one would not be exact in a score.
LATEST_US = 2**53 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
#: What else the caller may have meant.
_AT, _NOW = "; for a date and time use at(moment)", "; 0 means as soon as possible"


class Clock(Protocol):
    """What a script is told about the time."""

    def argument(self) -> bytes | int:
        """Return the script's first argument: empty for Redis's own time, else µs since the epoch."""

    def steady(self) -> float:
        """Return seconds that run on with this clock, from anywhere."""


class ServerClock:
    """Let the Redis server decide, as always in production."""

    def argument(self) -> bytes:
        """Return the empty argument."""
        return b""

    def steady(self) -> float:
        """Return this host's monotonic time, which nobody sets."""
        return monotonic()


#: Linux's clock that also counts while the host is suspended.
_BOOTTIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)


def lease_time() -> float:
    """Return the seconds in which a worker counts its leases; nobody sets them.

    Unlike `monotonic()` on Linux they run on while the host is suspended, as leases do in Redis.
    """
    return monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)


def duration_us(value: Any, *, name: str = "delay") -> int:
    """Convert seconds or a timedelta to µs, rounded up, so that nothing comes out early.

    Raises `DelayTypeError` and `DelayValueError`, which name the argument. Never raises OverflowError.
    """
    if isinstance(value, timedelta):
        microseconds = value // _MICROSECOND
    elif isinstance(value, bool) or not isinstance(value, (int, float)):
        raise DelayTypeError(
            f"{name} must be a number of seconds or a timedelta, got {type(value).__name__}"
            f"{_AT if name == 'delay' else ''}"
        )
    elif isinstance(value, int):
        microseconds = value * SECOND_US
    elif not isfinite(value):
        raise DelayValueError(f"{name} must be a finite number of seconds, got {value!r}")
    else:
        # A float of seconds holds about 15.9 digits: multiplying 0.1 by a million must not yield 100_000.00000000001
        # rounded up to 100_001, so what is closer than a thousandth of a microsecond counts as whole.
        exact = value * SECOND_US
        if not isfinite(exact):
            raise DelayValueError(f"{name} must be a number of seconds that fits a calendar, got {value!r}")
        microseconds = round(exact) if abs(exact - round(exact)) < 1e-3 else ceil(exact)
    # A float may be negative by less than rounding leaves.
    if microseconds < 0 or (isinstance(value, float) and value < 0):
        raise DelayValueError(f"{name} must not be negative{_NOW if name == 'delay' else ''}")
    return int(microseconds)


class Units(TypedDict, total=False):
    """The keywords of a timedelta."""

    weeks: float
    days: float
    hours: float
    minutes: float
    seconds: float
    milliseconds: float
    microseconds: float


def timedelta_of(units: Units) -> timedelta:
    """Return the timedelta of `after(minutes=10)`'s keywords. Raises `DelayTypeError`, `DelayValueError`, TypeError."""
    for name, value in units.items():
        if name not in Units.__annotations__:
            raise TypeError(f"after() has no keyword {name!r}; it takes {', '.join(Units.__annotations__)}")
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise DelayTypeError(f"after({name}=…) must be a number, got {type(value).__name__}")
        if value != value:
            raise DelayValueError(f"after({name}=…) must be a finite number, got {value!r}")
    try:
        return timedelta(**units)
    except OverflowError as error:
        raise DelayValueError(
            f"after({', '.join(units)}) is longer than a timedelta can be; use a shorter one"
        ) from error


def moment_us(value: Any, *, name: str = "at") -> int:
    """Convert an aware datetime of any zone to µs since the epoch by its instant, exactly."""
    if not isinstance(value, datetime):
        raise InvalidMoment(f"{name} must be an aware datetime, got {type(value).__name__}")
    if value.utcoffset() is None:
        raise InvalidMoment(
            f"{name} must be an aware datetime, got a naive one; use django.utils.timezone.make_aware(moment)"
        )
    return (value - _EPOCH) // _MICROSECOND


def moment(us: int) -> datetime:
    """Return the aware UTC datetime of µs since the epoch; beyond the calendar, its last moment."""
    try:
        return _EPOCH + timedelta(microseconds=us)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)
