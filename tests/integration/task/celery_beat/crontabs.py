"""Crontabs of Celery and the cron fields that are made of them: they have the same occurrences."""

from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any

import pytest
from django_celery_beat.models import CrontabSchedule
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from django_delayq.clock import moment, moment_us
from django_delayq.recurring.cron import make_cron
from django_delayq.recurring.rule import occurrences
from django_delayq.recurring.zones import zone_of
from django_delayq.task.recurring.celery_beat import _Unsupported, cron_options

WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat", "sunday", "monday", "Friday"]
MONTHS = ["jan", "feb", "mar", "jun", "dec", "january", "September"]
#: Without changes of their clocks: what Celery does there differs.
ZONES = ["UTC", "Asia/Kolkata", "America/Phoenix"]


def fields(low: int, high: int, names: list[str] | None = None) -> st.SearchStrategy[str]:
    """Texts that Celery may take for a field of these numbers."""
    number = st.integers(low, high).map(str) | (st.sampled_from(names) if names else st.nothing())
    steps = st.integers(1, high + 3).map(lambda step: f"/{step}")
    spans = st.tuples(number, number).map("-".join)
    part = st.one_of(number, spans, st.tuples(spans, steps).map("".join), st.tuples(st.just("*"), steps).map("".join))
    return st.just("*") | part | st.lists(part, min_size=2, max_size=4).map(",".join)


crontabs = st.builds(
    CrontabSchedule,
    minute=fields(0, 59),
    hour=fields(0, 23),
    day_of_month=fields(1, 31) | st.sampled_from(["1-7", "8-14", "1-7,15-21", "29-31", "22-31"]),
    month_of_year=fields(1, 12, MONTHS),
    day_of_week=fields(0, 6, WEEKDAYS),
    timezone=st.sampled_from(ZONES).map(zone_of),
)


def made(row: CrontabSchedule) -> dict[str, str] | None:
    """Return what is made of a row; None if it is not supported."""
    try:
        return cron_options(row)
    except _Unsupported as error:
        event(str(error)[:30])
        return None


def ours(options: dict[str, str], after: datetime, count: int) -> list[datetime]:
    """Return the next occurrences of the cron fields."""
    rule = make_cron(options["cron"], zone_of(options["tz"]))
    found = islice(occurrences(rule, after_us=moment_us(after, name="after")), count)
    return [each for each in map(moment, found) if each.year < 2255]


def of_celery(row: CrontabSchedule, after: datetime, count: int) -> list[datetime]:
    """Return the next occurrences as beat computes them: each from the last one, by the clock of that moment."""
    schedule, found = row.schedule, []
    for _ in range(count):
        schedule.nowfun = partial(after.astimezone, schedule.tz)
        after += timedelta(seconds=schedule.is_due(after).next)
        found.append(after)
    return found


@settings(max_examples=100)
@given(crontabs, st.datetimes(datetime(2026, 1, 1), datetime(2032, 1, 1), timezones=st.just(UTC)))
def test_occurrences_are_those_of_celery(row: Any, after: datetime) -> None:
    options = made(row)
    assume(options is not None)
    assert options is not None
    # Celery counts whole minutes: in a minute that matches, its last run may have been at any second.
    after = after.replace(second=0, microsecond=0)
    try:
        expected = of_celery(row, after, 12)
    except RuntimeError:
        # It gives up after 2,000 steps, as for 29 February on a Monday.
        assume(False)
    # No job is due later than 2255.
    assert ours(options, after, 12) == [each for each in expected if each.year < 2255]


@settings(max_examples=100)
@given(crontabs)
def test_only_a_day_of_both_kinds_is_not_supported(row: Any) -> None:
    if made(row) is not None:
        return
    try:
        schedule = row.schedule
    except Exception:
        return
    assert schedule.day_of_month != set(range(1, 32))
    assert schedule.day_of_week != set(range(7))


@pytest.mark.parametrize(
    ("texts", "cron"),
    [
        ({}, "* * * * *"),
        ({"minute": "*/15", "hour": "8-18/2"}, "*/15 8,10,12,14,16,18 * * *"),
        ({"minute": "0, 30", "hour": "22-2"}, "0,30 0-2,22-23 * * *"),
        ({"minute": "0", "hour": "9", "day_of_week": "mon-fri"}, "0 9 * * 1-5"),
        ({"minute": "0", "hour": "9", "day_of_week": "fri-mon"}, "0 9 * * 0-1,5-6"),
        ({"minute": "0", "hour": "9", "day_of_week": "sunday"}, "0 9 * * 0"),
        ({"minute": "0", "hour": "9", "day_of_month": "*/2", "day_of_week": "1"}, "0 9 */2 * 1"),
        ({"minute": "0", "hour": "9", "day_of_month": "1-7", "day_of_week": "1"}, "0 9 * * 1#1"),
        ({"minute": "0", "hour": "9", "day_of_month": "8-14,22-28", "day_of_week": "2,4"}, "0 9 * * 2#2,4#2,2#4,4#4"),
        ({"minute": "0", "hour": "9", "day_of_month": "31", "month_of_year": "nov-jan"}, "0 9 31 1,11-12 *"),
    ],
)
def test_fields_of_crontabs(texts: dict[str, str], cron: str) -> None:
    row = CrontabSchedule(timezone=zone_of("Europe/Berlin"), **texts)
    assert cron_options(row) == {"cron": cron, "tz": "Europe/Berlin"}


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ({"day_of_week": "7"}, "Celery cannot read its crontab: Invalid end range: 7 > 6."),
        ({"minute": "soon"}, "Celery cannot read its crontab"),
        ({"day_of_month": "13", "day_of_week": "5"}, "match both the day of the month and the day of the week"),
    ],
)
def test_crontabs_that_are_not_supported(texts: dict[str, str], reason: str) -> None:
    with pytest.raises(_Unsupported, match=reason):
        cron_options(CrontabSchedule(**texts))


def test_an_interval_of_years_is_no_reason_to_give_up() -> None:
    options = cron_options(CrontabSchedule(minute="0", hour="0", day_of_month="29", month_of_year="2"))
    first, second = ours(options, datetime(2026, 1, 1, tzinfo=UTC), 2)
    assert second - first > timedelta(days=1_400)
