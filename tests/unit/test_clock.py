"""Clock: users' times in whole microseconds, never early and never an OverflowError."""

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as some

from django_delayq.clock import ServerClock, duration_us, moment, moment_us
from django_delayq.exceptions import DelayTypeError, DelayValueError, InvalidDelay, InvalidMoment

#: No verdict from how long an example took: the machine may be busy.
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "us"),
    [
        (0, 0),
        (-0.0, 0),
        (0.0004, 400),
        (0.1, 100_000),
        (0.3, 300_000),
        (1.1, 1_100_000),
        (2.675, 2_675_000),
        (123_456.789_012, 123_456_789_012),
        (0.000_000_5, 1),
        (0.000_001, 1),
        (0.000_001_2, 2),
        (1 / 3, 333_334),
        (600, 600_000_000),
        (2**60, 2**60 * 1_000_000),
        (10**400, 10**406),
        (timedelta(0), 0),
        (timedelta(microseconds=1), 1),
        (timedelta(days=3_650), 315_360_000_000_000),
        (timedelta.max, timedelta.max // timedelta(microseconds=1)),
    ],
)
def test_duration_is_whole_microseconds_rounded_up(value: Any, us: int) -> None:
    found = duration_us(value)
    assert (found, type(found)) == (us, int)


@pytest.mark.parametrize(
    "value",
    ["5", b"5", True, False, None, 1j, date(2030, 1, 1), datetime(2030, 1, 1, tzinfo=UTC), [5], Decimal("5")],
)
def test_a_value_that_is_no_number_of_seconds_is_a_type_error(value: Any) -> None:
    with pytest.raises(DelayTypeError, match="delay must be a number of seconds or a timedelta") as caught:
        duration_us(value)
    assert isinstance(caught.value, InvalidDelay) and isinstance(caught.value, TypeError)
    assert type(value).__name__ in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        -math.inf,
        -1,
        -0.5,
        -1e308,
        1e308,
        1.7e308,
        -(10**400),
        -(10**5000),
        timedelta(microseconds=-1),
        timedelta.min,
    ],
    ids=lambda value: str(type(value).__name__),
)
def test_a_duration_out_of_range_is_a_value_error_never_an_overflow(value: Any) -> None:
    with pytest.raises(DelayValueError, match="lease") as caught:
        duration_us(value, name="lease")
    assert isinstance(caught.value, InvalidDelay) and isinstance(caught.value, ValueError)


@pytest.mark.parametrize("value", [-1e-7, -1e-300, -5e-324])
def test_a_negative_duration_below_a_microsecond_is_negative_too(value: float) -> None:
    with pytest.raises(DelayValueError):
        duration_us(value)


@given(some.floats(min_value=0, max_value=1e9))
def test_no_float_is_rounded_down(seconds: float) -> None:
    exact = Fraction(seconds) * 1_000_000
    found = duration_us(seconds)
    # A float cannot be exactly 0.1, so a difference of less than a thousandth of a microsecond is ignored. For a large
    # float, the distance to the next float is larger than that.
    tolerance = max(Fraction(1, 1_000), Fraction(math.ulp(seconds)) * 1_000_000)
    assert exact - tolerance <= found <= exact + 1 + tolerance


@given(some.integers(min_value=0, max_value=10**9), some.integers(min_value=0, max_value=999_999))
def test_a_float_of_whole_microseconds_stays_whole(seconds: int, us: int) -> None:
    whole = seconds * 1_000_000 + us
    assert abs(duration_us(whole / 1_000_000) - whole) <= 1
    assert duration_us(timedelta(seconds=seconds, microseconds=us)) == whole


@given(some.floats() | some.integers() | some.timedeltas())
def test_any_number_is_a_duration_or_an_invalid_delay(value: Any) -> None:
    try:
        assert duration_us(value) >= 0
    except DelayValueError:
        # Negative, not finite, or more microseconds than a float can hold.
        assert value < timedelta(0) if isinstance(value, timedelta) else not 0 <= value < 1e300


@pytest.mark.parametrize(
    "value",
    [
        datetime(2030, 1, 1, 12, tzinfo=UTC),
        datetime(2030, 1, 1, 12, tzinfo=timezone(timedelta(hours=5, minutes=30))),
        datetime(1, 1, 1, tzinfo=UTC),
        datetime.max.replace(tzinfo=UTC),
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-12))),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
    ],
)
def test_a_datetime_is_converted_from_any_time_zone(value: datetime) -> None:
    assert moment_us(value) == (value - EPOCH) // timedelta(microseconds=1)


def test_both_sides_of_a_fold_are_different_times() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    first = datetime(2030, 10, 27, 2, 30, tzinfo=berlin, fold=0)
    assert moment_us(first.replace(fold=1)) - moment_us(first) == 3_600_000_000
    assert moment_us(first) == moment_us(datetime(2030, 10, 27, 0, 30, tzinfo=UTC))


def test_a_datetime_in_a_gap_is_converted_too() -> None:
    gap = datetime(2030, 3, 31, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    assert moment_us(gap) == moment_us(datetime(2030, 3, 31, 1, 30, tzinfo=UTC))


def test_a_naive_datetime_is_refused_with_the_cure() -> None:
    with pytest.raises(InvalidMoment, match="at must be an aware datetime.*make_aware") as caught:
        moment_us(datetime(2030, 1, 1))
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("value", ["2030-01-01", date(2030, 1, 1), 1_900_000_000, None, timedelta(1)])
def test_a_value_that_is_no_datetime_is_refused(value: Any) -> None:
    with pytest.raises(InvalidMoment, match=f"run_after must be an aware datetime, got {type(value).__name__}"):
        moment_us(value, name="run_after")


@given(some.datetimes(timezones=some.just(UTC)))
def test_a_datetime_survives_exactly(value: datetime) -> None:
    assert moment(moment_us(value)) == value


@pytest.mark.parametrize("us", [10**30, 2**63, 10**300])
def test_microseconds_out_of_range_are_the_latest_datetime(us: int) -> None:
    assert moment(us) == datetime.max.replace(tzinfo=UTC)


def test_in_production_redis_decides_the_time() -> None:
    assert ServerClock().argument() == b""
