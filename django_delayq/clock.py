"""Clock: the time in Redis, and the conversion of users' durations and datetimes to integer microseconds.

Only Redis's own time decides when a job is due; tests alone pass a number instead. Times are µs since the epoch. No
other module converts durations and datetimes.
"""

import time
from datetime import UTC, datetime, timedelta
from math import ceil, isfinite
from time import monotonic
from typing import Any, Protocol, TypedDict

from django_delayq.exceptions import DelayTypeError, DelayValueError, InvalidMoment, see

SECOND_US = 1_000_000
HOUR_US, DAY_US = 3_600 * SECOND_US, 86_400 * SECOND_US
#: The longest delay of all: the default of MAX_DELAY, which may only be shorter.
LONGEST_DELAY_US = 3_650 * DAY_US
#: The latest due time that is accepted, in the year 2255: a later one would not be exact in a score.
LATEST_US = 2**53 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
#: Ends of error messages about a delay: the cure for a wrong type, and for a negative number.
_USE_AT, _USE_ZERO = "; for a date and time use at(moment)", "; 0 means as soon as possible"

_SEE_AWARE = see("troubleshooting#a-datetime-is-naive")


class Clock(Protocol):
    """The source of the time that is passed to scripts."""

    def argument(self) -> bytes | int:
        """Return the first argument of a script: b"" for Redis's own time, else µs since the epoch."""

    def steady(self) -> float:
        """Return a monotonic time in seconds that advances with this clock."""


class ServerClock:
    """Redis's own time, which production always uses."""

    def argument(self) -> bytes:
        """Return the empty argument: the script reads the server's time."""
        return b""

    def steady(self) -> float:
        """Return this host's monotonic time."""
        return monotonic()


def estimated_us(clock: Clock) -> int:
    """Return a clock's time in µs since the epoch. For Redis's own time it is the time of this host."""
    now = clock.argument()
    return now if isinstance(now, int) else time.time_ns() // 1_000


#: Linux's clock that also counts while the host is suspended.
_BOOTTIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)


def lease_time() -> float:
    """Return the monotonic seconds in which a worker counts its leases.

    Unlike `monotonic()` on Linux they advance while the host is suspended, as leases in Redis do.
    """
    return monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)


def duration_us(value: Any, *, name: str = "delay") -> int:
    """Convert seconds or a timedelta to µs; fractions are rounded up so that no job runs early.

    Raises `DelayTypeError` and `DelayValueError` with the argument's `name`. Never raises OverflowError.
    """
    if isinstance(value, timedelta):
        microseconds = value // _MICROSECOND
    elif isinstance(value, bool) or not isinstance(value, (int, float)):
        raise DelayTypeError(
            f"{name} must be a number of seconds or a timedelta, got {type(value).__name__}"
            f"{_USE_AT if name == 'delay' else ''}"
        )
    elif isinstance(value, int):
        microseconds = value * SECOND_US
    elif not isfinite(value):
        raise DelayValueError(f"{name} must be a finite number of seconds, got {value!r}")
    else:
        # A float has about 15.9 digits: 4.03 * 1_000_000 is 4_030_000.0000000005, which must not be rounded up to
        # 4_030_001. So a value within a thousandth of a microsecond of a whole number counts as that number.
        exact = value * SECOND_US
        if not isfinite(exact):
            raise DelayValueError(f"{name} must be a number of seconds that fits a calendar, got {value!r}")
        microseconds = round(exact) if abs(exact - round(exact)) < 1e-3 else ceil(exact)
    # A negative float may be rounded to 0.
    if microseconds < 0 or (isinstance(value, float) and value < 0):
        raise DelayValueError(f"{name} must not be negative{_USE_ZERO if name == 'delay' else ''}")
    return int(microseconds)


class Units(TypedDict, total=False):
    """The keyword arguments of a timedelta."""

    weeks: float
    days: float
    hours: float
    minutes: float
    seconds: float
    milliseconds: float
    microseconds: float


def timedelta_of(units: Units, *, of: str = "after") -> timedelta:
    """Return the timedelta that the keyword arguments of `after(minutes=10)` describe; `of` names it in errors.

    Raises `DelayTypeError` and `DelayValueError`; TypeError for an unknown keyword.
    """
    for name, value in units.items():
        if name not in Units.__annotations__:
            raise TypeError(f"{of}() has no keyword {name!r}; it takes {', '.join(Units.__annotations__)}")
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise DelayTypeError(f"{of}({name}=…) must be a number, got {type(value).__name__}")
        if value != value:
            raise DelayValueError(f"{of}({name}=…) must be a finite number, got {value!r}")
    try:
        return timedelta(**units)
    except OverflowError as error:
        raise DelayValueError(
            f"{of}({', '.join(units)}) is longer than a timedelta can be; use a shorter one"
        ) from error


def moment_us(value: Any, *, name: str = "at") -> int:
    """Convert an aware datetime of any time zone to µs since the epoch, exactly. Raises `InvalidMoment`."""
    if not isinstance(value, datetime):
        raise InvalidMoment(f"{name} must be an aware datetime, got {type(value).__name__}. {_SEE_AWARE}")
    if value.utcoffset() is None:
        raise InvalidMoment(
            f"{name} must be an aware datetime, got a naive one; use django.utils.timezone.make_aware(moment). "
            f"{_SEE_AWARE}"
        )
    return (value - _EPOCH) // _MICROSECOND


def moment(us: int) -> datetime:
    """Return the UTC datetime of µs since the epoch; the latest datetime if that is out of range."""
    try:
        return _EPOCH + timedelta(microseconds=us)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)
