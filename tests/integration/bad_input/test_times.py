"""Times: bad delays and moments, in every call that accepts them."""

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from redis import Redis

from django_delayq import execute_later
from django_delayq.exceptions import (
    InvalidDelay,
    InvalidMoment,
)
from tests.integration.bad_input.refusals import NAME, SECRET, refused
from tests.one_by_one import one_by_one
from tests.sample_app.tasks import noop

#: Every call that accepts a delay.
DELAYS: dict[str, Callable[[Any], Any]] = {
    "after": lambda delay: noop.after(delay).enqueue(),
    "using": lambda delay: noop.using(delay=delay).enqueue(),
    "execute_later": lambda delay: execute_later("mail", NAME, [], delay=delay),
    "enqueue_many": lambda delay: noop.after(delay).enqueue_many([(1,)]),
    "reschedule": lambda delay: noop.job().reschedule(delay=delay),
}


@pytest.mark.parametrize("call", DELAYS)
@pytest.mark.parametrize(
    "delay",
    ["5", b"5", True, False, 1j, date(2030, 1, 1), datetime(2030, 1, 1, tzinfo=UTC), [5], Decimal(5), SECRET],
    ids=lambda value: type(value).__name__,
)
def test_a_delay_of_another_type_is_refused(call: str, delay: Any) -> None:
    words = f"delay must be a number of seconds or a timedelta, got {type(delay).__name__}"
    refused(InvalidDelay, TypeError, words, lambda: DELAYS[call](delay))


@pytest.mark.parametrize("call", ["after", "execute_later"])
def test_none_is_refused_if_a_delay_is_required(call: str) -> None:
    refused(InvalidDelay, TypeError, "seconds.*timedelta", lambda: DELAYS[call](None))


@pytest.mark.parametrize("call", DELAYS)
@pytest.mark.parametrize("delay", [math.nan, math.inf, -math.inf, -1, -1e-9, -0.5, timedelta(microseconds=-1)])
def test_a_delay_out_of_range_is_refused(call: str, delay: Any) -> None:
    refused(InvalidDelay, ValueError, r"delay must (be a finite|not be negative)", lambda: DELAYS[call](delay))


@pytest.mark.parametrize("call", DELAYS)
@pytest.mark.parametrize("delay", [timedelta(days=3_651), 1e300, 10**400, timedelta.max, 1e308, 1.7e308])
def test_a_delay_beyond_its_limit_is_refused(call: str, delay: Any) -> None:
    words = "delay .*MAX_DELAY|delay must be a number of seconds that fits a calendar"
    refused(InvalidDelay, ValueError, words, lambda: DELAYS[call](delay))


def test_the_error_names_the_limit_and_the_limit_itself_is_allowed(delayq_settings: Any, client: Redis) -> None:
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "MAX_DELAY": timedelta(days=2)}
    assert noop.after(days=2).enqueue().cancel()
    error = refused(InvalidDelay, ValueError, "MAX_DELAY", lambda: noop.after(days=2, microseconds=1).enqueue())
    assert "2 days" in str(error)
    client.flushall()


@pytest.mark.parametrize(
    ("units", "builtin"),
    [
        ({"days": "1"}, TypeError),
        ({"minutes": None}, TypeError),
        ({"days": math.nan}, ValueError),
        ({"days": math.inf}, ValueError),
        ({"days": 10**400}, ValueError),
        ({"weeks": 10**9}, ValueError),
        ({"hours": -1}, ValueError),
        ({"weeks": 1_000}, ValueError),
    ],
)
def test_units_with_bad_values_are_refused(units: Any, builtin: type[Exception]) -> None:
    refused(InvalidDelay, builtin, "after|delay", lambda: noop.after(**units).enqueue())


@pytest.mark.parametrize("units", [{"fortnights": 1}, {"month": 1}])
def test_unknown_units_are_refused(units: Any) -> None:
    with pytest.raises(TypeError, match=next(iter(units))):
        noop.after(**units)


def test_no_time_or_two_times_are_refused() -> None:
    for act in (lambda: noop.after(), lambda: noop.after(5, minutes=1)):
        with pytest.raises(TypeError, match=r"after\(\) takes"):
            act()
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    for options in ({"delay": 5, "at": moment}, {"delay": 0, "run_after": moment}):
        with pytest.raises(TypeError, match="either a delay or a moment"):
            noop.using(**options)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="at and run_after"):
        noop.using(at=moment, run_after=moment)


MOMENTS: dict[str, Callable[[Any], Any]] = {
    "at": lambda moment: noop.at(moment).enqueue(),
    "using": lambda moment: noop.using(at=moment).enqueue(),
    "run_after": lambda moment: noop.using(run_after=moment).enqueue(),
    "reschedule": lambda moment: noop.job().reschedule(at=moment),
}


@pytest.mark.parametrize("call", MOMENTS)
def test_a_naive_moment_is_refused(call: str) -> None:
    words = "aware datetime.*make_aware"
    refused(InvalidMoment, ValueError, words, lambda: MOMENTS[call](datetime(2030, 1, 1)))


@pytest.mark.parametrize("call", MOMENTS)
@pytest.mark.parametrize("moment", ["2030-01-01", 5, date(2030, 1, 1), timedelta(1), True], ids=str)
def test_an_object_that_is_no_moment_is_refused(call: str, moment: Any) -> None:
    words = f"must be an aware datetime, got {type(moment).__name__}"
    refused(InvalidMoment, ValueError, words, lambda: MOMENTS[call](moment))


@pytest.mark.parametrize("call", MOMENTS)
@pytest.mark.parametrize("moment", [datetime.max.replace(tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)], ids=str)
def test_a_moment_beyond_the_limit_is_refused(call: str, moment: datetime) -> None:
    refused(InvalidDelay, ValueError, r"at is more than MAX_DELAY \(3,650 days\)", lambda: MOMENTS[call](moment))


def test_a_missing_moment_is_refused() -> None:
    with pytest.raises(TypeError, match=r"at\(\) takes an aware datetime"):
        noop.at(None)


def test_an_operation_that_comes_too_late_changes_nothing(client: Redis) -> None:
    handle = noop.after(60).enqueue()
    assert handle.cancel() is True and handle.reschedule(delay=5) is False
    operations = one_by_one()
    raw = bytes(12)
    assert operations.cancel(raw) is False
    assert operations.requeue(raw, died_us=1) is None
    assert operations.discard(raw, died_us=1) is False and operations.move(raw, "other") is False
    client.flushall()


@pytest.mark.parametrize("grace", [86_400.1, timedelta(days=2), 1e15, 1e300, 10**400, math.nan, math.inf, -1, "5"])
def test_a_grace_out_of_range_is_refused_and_the_job_stays(grace: Any, client: Redis) -> None:
    job = noop.after(hours=1).enqueue()
    with pytest.raises(InvalidDelay, match="grace must"):
        job.stop(grace=grace)
    with pytest.raises(InvalidDelay, match="grace must"):
        async_to_sync(job.astop)(grace=grace)
    assert job.refresh().state == "scheduled"
    assert job.stop(grace=timedelta(days=1))
    client.flushall()
