"""RetryPolicy: how often and how far apart, for any number of attempts."""

import pickle
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from django_delayq.exceptions import DelayTypeError, DelayValueError
from django_delayq.job.retry import MAX_ATTEMPTS, RetryPolicy

#: No verdict from how long an example took: the machine may be busy.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
SECOND = 1_000_000
ALMOST_ONE = 1 - 2**-53


def test_defaults_are_those_of_the_manual() -> None:
    policy = RetryPolicy()
    assert (policy.max_attempts, policy.on_error) == (5, True)
    assert (policy.base, policy.cap) == (timedelta(seconds=2), timedelta(hours=1))


def test_seconds_and_timedelta_are_equivalent() -> None:
    assert RetryPolicy(base=1.5, cap=60) == RetryPolicy(base=timedelta(seconds=1.5), cap=timedelta(minutes=1))


@pytest.mark.parametrize(
    ("ended", "ceiling"), [(1, 2), (2, 4), (3, 8), (10, 1_024), (11, 2_048), (12, 3_600), (13, 3_600)]
)
def test_ceiling_doubles_up_to_the_cap(ended: int, ceiling: int) -> None:
    policy = RetryPolicy()
    assert policy.delay_us(ended, 0.0) == 0
    assert policy.delay_us(ended, 0.5) == ceiling * SECOND // 2
    assert ceiling * SECOND - 2 <= policy.delay_us(ended, ALMOST_ONE) <= ceiling * SECOND


@patient
@given(
    ended=some.integers(min_value=1, max_value=10**12),
    jitter=some.floats(min_value=0, max_value=1, exclude_max=True),
    base=some.timedeltas(min_value=timedelta(0)),
    cap=some.timedeltas(min_value=timedelta(0)),
)
def test_full_jitter_is_between_0_and_the_ceiling(ended: int, jitter: float, base: timedelta, cap: timedelta) -> None:
    delay = RetryPolicy(base=base, cap=cap).delay_us(ended, jitter)
    assert type(delay) is int
    ceiling = cap // timedelta(microseconds=1)
    if ended < 60:
        ceiling = min(ceiling, base // timedelta(microseconds=1) * 2 ** (ended - 1))
    # Spans over 2^53 µs (285 years) are not exact in the product with a float.
    assert 0 <= delay <= ceiling * (1 + 2**-50)


@patient
@given(some.integers(min_value=1, max_value=100), some.floats(min_value=0, max_value=1, exclude_max=True))
def test_a_later_attempt_never_waits_less_for_the_same_draw(ended: int, jitter: float) -> None:
    policy = RetryPolicy()
    assert policy.delay_us(ended, jitter) <= policy.delay_us(ended + 1, jitter)


@pytest.mark.parametrize("number", [1, MAX_ATTEMPTS])
def test_limits_of_max_attempts_are_legal(number: int) -> None:
    assert RetryPolicy(max_attempts=number).max_attempts == number


@pytest.mark.parametrize("number", [0, -1, 1_001, True, False, 3.0, "3", None])
def test_other_max_attempts_are_refused_by_name(number: Any) -> None:
    with pytest.raises(ValueError, match=r"max_attempts must be .*, got"):
        RetryPolicy(max_attempts=number)


@pytest.mark.parametrize("name", ["base", "cap"])
@pytest.mark.parametrize(
    "value", [-1, float("nan"), float("inf"), 1e300, 10**400, timedelta(-1)], ids=lambda value: repr(value)[:8]
)
def test_delays_out_of_range_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(DelayValueError, match=name):
        RetryPolicy(**{name: value})


@pytest.mark.parametrize("name", ["base", "cap"])
@pytest.mark.parametrize("value", ["2", None, True])
def test_delays_of_other_types_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(DelayTypeError, match=name):
        RetryPolicy(**{name: value})


@pytest.mark.parametrize("value", [0, 1, None, "yes"])
def test_on_error_must_be_a_bool(value: Any) -> None:
    with pytest.raises(ValueError, match="on_error must be True or False"):
        RetryPolicy(on_error=value)


def test_a_policy_is_plain_data() -> None:
    policy = RetryPolicy(max_attempts=2, base=1)
    assert pickle.loads(pickle.dumps(policy)) == policy
    with pytest.raises(AttributeError):
        policy.max_attempts = 3  # type: ignore[misc]
