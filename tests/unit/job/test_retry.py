"""RetryPolicy: how often and how far apart, for any number of attempts."""

import pickle
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from django_delayq.exceptions import DelayTypeError, DelayValueError
from django_delayq.job.retry import MAX_ATTEMPTS, RetryPolicy, class_path, lineage_of

#: No verdict from how long an example took: the machine may be busy.
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


@given(some.integers(min_value=1, max_value=100), some.floats(min_value=0, max_value=1, exclude_max=True))
def test_a_later_attempt_never_waits_less_for_the_same_draw(ended: int, jitter: float) -> None:
    policy = RetryPolicy()
    assert policy.delay_us(ended, jitter) <= policy.delay_us(ended + 1, jitter)


@pytest.mark.parametrize("number", [1, MAX_ATTEMPTS])
def test_limits_of_max_attempts_are_legal(number: int) -> None:
    assert RetryPolicy(max_attempts=number).max_attempts == number


@pytest.mark.parametrize("number", [0, -1, 1_001, True, False, 3.0, "3"])
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


def test_delays_are_exact_and_the_last_repeats() -> None:
    policy = RetryPolicy(delays=[5, timedelta(minutes=1), 600.5])
    assert [
        policy.delay_us(ended, jitter) for ended, jitter in ((1, 0.0), (2, 0.9), (3, 0.5), (4, 0.1), (99, 0.3))
    ] == [
        5 * SECOND,
        60 * SECOND,
        600_500_000,
        600_500_000,
        600_500_000,
    ]


def test_the_longest_delay_is_legal() -> None:
    assert RetryPolicy(delays=[timedelta(days=3_650)]).delay_us(1, 0.0) == 3_650 * 86_400 * SECOND


def test_as_many_attempts_as_delays_and_one_more() -> None:
    assert RetryPolicy(delays=[1]).max_attempts == 2
    assert RetryPolicy(delays=(1, 2, 3)).max_attempts == 4
    assert RetryPolicy(delays=[1, 2, 3], max_attempts=10).max_attempts == 10
    assert RetryPolicy(delays=[1], max_attempts=None).max_attempts is None


def test_a_policy_may_try_for_ever() -> None:
    policy = RetryPolicy(max_attempts=None)
    assert all(policy.allows(attempt) for attempt in (1, 1_000, 65_536, 10**9))
    assert [RetryPolicy(max_attempts=3).allows(attempt) for attempt in (2, 3, 4)] == [True, False, False]


class Declined(ValueError):
    """An error of a project."""


class Stolen(Declined, KeyError):
    """A more specific one, with two bases."""


class Both(LookupError, ValueError):
    """Its bases are equally specific."""


class Late(Both, OSError):
    """Its base OSError is nearer than LookupError, and as near as Both."""


@pytest.mark.parametrize(
    ("kind", "levels"),
    [
        (object, [[object]]),
        (Declined, [[Declined], [ValueError], [Exception], [BaseException], [object]]),
        (Stolen, [[Stolen], [Declined, KeyError], [ValueError, LookupError], [Exception], [BaseException], [object]]),
        (Late, [[Late], [Both, OSError], [LookupError, ValueError], [Exception], [BaseException], [object]]),
    ],
)
def test_a_class_is_more_specific_than_its_bases(kind: type, levels: list[list[type]]) -> None:
    assert lineage_of(kind) == tuple(tuple(map(class_path, level)) for level in levels)


@pytest.mark.parametrize(
    ("rules", "kind", "retried"),
    [
        ({}, OSError, True),
        ({"on_error": False}, OSError, False),
        # With retry_on nothing else is tried again, and subclasses are included.
        ({"retry_on": OSError}, OSError, True),
        ({"retry_on": OSError}, ConnectionResetError, True),
        ({"retry_on": OSError}, ValueError, False),
        ({"retry_on": OSError, "on_error": False}, ConnectionResetError, True),
        ({"retry_on": [OSError, ValueError]}, Declined, True),
        # With dead_on all else is.
        ({"dead_on": ValueError}, Declined, False),
        ({"dead_on": ValueError}, OSError, True),
        ({"dead_on": ValueError, "on_error": False}, OSError, False),
        # The more specific one decides.
        ({"retry_on": ValueError, "dead_on": Declined}, ValueError, True),
        ({"retry_on": ValueError, "dead_on": Declined}, Declined, False),
        ({"retry_on": Declined, "dead_on": ValueError}, Stolen, True),
        ({"retry_on": Declined, "dead_on": ValueError}, UnicodeError, False),
        ({"retry_on": LookupError, "dead_on": Declined}, Stolen, False),
        # At equal depth dead_on does.
        ({"retry_on": ValueError, "dead_on": ValueError}, Declined, False),
        ({"retry_on": LookupError, "dead_on": ValueError}, Both, False),
        ({"retry_on": ValueError, "dead_on": LookupError}, Both, False),
        ({"retry_on": Declined, "dead_on": KeyError}, Stolen, False),
        ({"retry_on": OSError, "dead_on": ValueError}, Late, True),
        ({"retry_on": BaseException}, SystemExit, True),
    ],
)
def test_the_class_of_an_exception_decides(rules: Any, kind: type[BaseException], retried: bool) -> None:
    assert RetryPolicy(**rules).retries(lineage_of(kind)) is retried


@pytest.mark.parametrize("rules", [{"retry_on": OSError}, {"dead_on": OSError}, {}])
def test_rules_do_not_apply_if_no_exception_ended_the_attempt(rules: Any) -> None:
    assert RetryPolicy(**rules).retries(()) is True


def test_rules_are_stored_as_dotted_paths() -> None:
    policy = RetryPolicy(retry_on=[Declined, "shop.errors.Busy", "KeyError", Declined], dead_on=(OSError, "a.B.C"))
    assert policy.retry_on == (f"{__name__}.Declined", "shop.errors.Busy", "builtins.KeyError")
    assert policy.dead_on == ("builtins.OSError", "a.B.C")
    assert RetryPolicy(retry_on="KeyError") == RetryPolicy(retry_on=KeyError) == RetryPolicy(retry_on={KeyError})


@pytest.mark.parametrize("name", ["retry_on", "dead_on"])
@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (
            "ValueErrr",
            r"has 'ValueErrr', which is no builtin exception \(did you mean 'ValueError'\?\); pass the class",
        ),
        ("print", "has 'print', which is no builtin exception"),
        ("int", "has 'int', which is no builtin exception"),
        ("shop..errors", "has 'shop..errors', which is no dotted path; write 'shop.errors.Declined'"),
        ("shop.errors.", "has 'shop.errors.', which is no dotted path"),
        ("", "has '', which is no builtin exception"),
        (int, "must have exception classes or dotted paths of them, got builtins.int"),
        ([ValueError, 5], "must have exception classes or dotted paths of them, got int"),
        (ValueError("x"), "must be exception classes or dotted paths of them, got ValueError"),
        (None, "must be exception classes or dotted paths of them, got NoneType"),
        ({"a.B": 1}, "must be exception classes or dotted paths of them, got dict"),
    ],
)
def test_other_rules_are_refused_by_name(name: str, value: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=f"{name} {complaint}"):
        RetryPolicy(**{name: value})


@pytest.mark.parametrize(
    ("delays", "complaint"),
    [
        ([], "delays must have at least one delay"),
        ("5", "delays must be a list of seconds or timedeltas, got str"),
        (5, "delays must be a list of seconds or timedeltas, got int"),
        ({5}, "delays must be a list of seconds or timedeltas, got set"),
        ([1, -1], r"delays\[1\] must not be negative"),
        (["1"], r"delays\[0\] must be a number of seconds or a timedelta, got str"),
        ([float("nan")], r"delays\[0\] must be a finite number"),
        ([1, 3_650 * 86_400.000_001], r"delays\[1\] is longer than 3,650 days; use a shorter one"),
        ([timedelta.max], r"delays\[0\] is longer than 3,650 days; use a shorter one"),
        ([1] * 1_000, "delays must be fewer than 1,000, got 1,000; the last repeats"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_other_delays_are_refused(delays: Any, complaint: str) -> None:
    with pytest.raises((ValueError, DelayTypeError), match=complaint):
        RetryPolicy(delays=delays)


def test_a_policy_is_plain_data() -> None:
    policy = RetryPolicy(max_attempts=2, base=1, retry_on=OSError, delays=[1])
    assert pickle.loads(pickle.dumps(policy)) == policy
    with pytest.raises(AttributeError):
        policy.max_attempts = 3  # type: ignore[misc]
