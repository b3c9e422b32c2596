"""Schedules: bounds, jitter, planting, and options that are refused."""

import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_delayq.exceptions import DelayQError, InvalidDelay, InvalidMoment, InvalidSchedule
from django_delayq.recurring.cron import make_cron
from django_delayq.recurring.rule import Every, make_rule, occurrences, read_rule
from django_delayq.recurring.schedule import Schedule, make_schedule

SECOND, HOUR = 1_000_000, 3_600_000_000
NOW = datetime(2026, 1, 1, tzinfo=UTC)
NOW_US = int(NOW.timestamp()) * SECOND


def made(**options: Any) -> Schedule:
    return make_schedule("digest:42", now_us=NOW_US, **{"every": 3600, **options})


def test_intervals_are_anchored_at_the_epoch_unless_they_have_a_start() -> None:
    assert list(occurrences(make_rule(every=7), after_us=0, until_us=21 * SECOND)) == [
        7 * SECOND,
        14 * SECOND,
        21 * SECOND,
    ]
    start = NOW + timedelta(seconds=2.5)
    rule = make_rule(every=timedelta(minutes=5), start=start)
    first = NOW_US + 3 * SECOND
    assert list(occurrences(rule, after_us=0, until_us=first + 300 * SECOND)) == [first, first + 300 * SECOND]
    assert rule.next_after(first) == first + 300 * SECOND


@pytest.mark.parametrize(
    "options",
    [
        {"every": 1},
        {"every": timedelta(days=30)},
        {"every": 60, "start": NOW},
        {"cron": "0 9 * * mon-fri", "tz": "Europe/Berlin"},
    ],
)
def test_a_stored_rule_is_read_again(options: dict[str, Any]) -> None:
    rule = make_rule(**options)
    assert read_rule(rule.text) == rule
    assert read_rule(rule.text).next_after(NOW_US) == rule.next_after(NOW_US)


@pytest.mark.parametrize(
    "text", ["", "every 0 from 0", "every -1 from 0", "weekly", "0 9 * * * in Mars/Base", "x in UTC"]
)
def test_a_rule_that_this_release_cannot_read_is_refused(text: str) -> None:
    with pytest.raises(InvalidSchedule):
        read_rule(text)


def test_occurrences_are_between_start_and_end() -> None:
    schedule = made(start=NOW + timedelta(hours=2), end=NOW + timedelta(hours=3))
    assert schedule.next_after(NOW_US) == NOW_US + 2 * HOUR
    assert schedule.next_after(NOW_US + 2 * HOUR) == NOW_US + 3 * HOUR
    assert schedule.next_after(NOW_US + 3 * HOUR) is None


def test_jitter_and_planting_depend_on_the_name_alone() -> None:
    names = [f"digest:{number}" for number in range(1_000)]
    schedules = [Schedule(name=name, rule=Every(HOUR), jitter_us=600 * SECOND) for name in names]
    late = [schedule.due_us(NOW_US) - NOW_US for schedule in schedules]
    assert late == [schedule.due_us(NOW_US + HOUR) - NOW_US - HOUR for schedule in schedules]
    assert len(set(late)) == 1_000
    assert 0 <= min(late) < 10 * SECOND and 590 * SECOND < max(late) < 600 * SECOND
    planted = [schedule.planted_us(NOW_US, NOW_US + HOUR) - schedule.due_us(NOW_US) for schedule in schedules]
    assert 0 <= min(planted) < 6 * SECOND and 354 * SECOND < max(planted) < 360 * SECOND


def test_a_late_job_expires_only_if_nothing_is_caught_up() -> None:
    assert made().expires_after_us(0, HOUR) is None
    assert made(catch_up="none", every=60).expires_after_us(0, 60 * SECOND) == 60 * SECOND
    assert made(catch_up="none", every=86_400).expires_after_us(0, 24 * HOUR) == HOUR
    assert made(catch_up="none").expires_after_us(0, None) == HOUR
    assert made(catch_up="none", window=5).expires_after_us(0, HOUR) == 5 * SECOND


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"every": 0}, InvalidSchedule, "every=0 must be whole seconds, at least 1"),
        ({"every": 0.5}, InvalidSchedule, "at least 1"),
        ({"every": timedelta(seconds=1.5)}, InvalidSchedule, "whole seconds"),
        ({"every": -5}, InvalidDelay, "every"),
        ({"every": "5"}, InvalidDelay, "every"),
        ({"every": None}, InvalidSchedule, "either every= or cron="),
        ({"cron": "* * * * *"}, InvalidSchedule, "either every= or cron="),
        ({"tz": "UTC"}, InvalidSchedule, "tz= is for cron="),
        ({"every": None, "cron": "0 0 30 2 *", "tz": "UTC"}, InvalidSchedule, "cron='0 0 30 2 [*]' cannot be read"),
        ({"every": None, "cron": "* * * * *", "tz": "Europe/Berln"}, InvalidSchedule, "did you mean 'Europe/Berlin'"),
        ({"every": None, "cron": "* * * * *", "tz": "../etc"}, InvalidSchedule, "no time zone"),
        ({"every": None, "cron": "* * * * *", "tz": 7}, InvalidSchedule, "tz must be the name of a time zone"),
        ({"every": None, "cron": "* * * * *"}, InvalidSchedule, "tz must be the name of a time zone"),
        ({"start": datetime(2026, 1, 1)}, InvalidMoment, "start"),
        ({"end": datetime(2026, 1, 1)}, InvalidMoment, "end"),
        ({"end": NOW - timedelta(days=1)}, InvalidSchedule, "is not after now"),
        ({"start": NOW + timedelta(days=2), "end": NOW + timedelta(days=1)}, InvalidSchedule, "is not after start"),
        ({"end": NOW + timedelta(seconds=1)}, InvalidSchedule, "no occurrence before its end"),
        ({"every": None, "cron": "0 0 */31 * mon#5", "tz": "UTC"}, InvalidSchedule, "a day that its months have"),
        (
            {"jitter": 3600},
            InvalidSchedule,
            "jitter=3600 must be shorter than the shortest time between",
        ),
        ({"jitter": -1}, InvalidDelay, "jitter"),
        ({"overlap": "queue"}, InvalidSchedule, "overlap must be one of 'skip', 'wait', 'stop', 'allow', got 'queue'"),
        ({"catch_up": "some"}, InvalidSchedule, "catch_up must be one of 'none', 'last', 'all'"),
        ({"window": 5}, InvalidSchedule, "window= is for catch_up='none'"),
        ({"catch_up": "none", "window": 0.5}, InvalidSchedule, "window=0.5 must be at least 1 second"),
        ({"catch_up": "none", "window": timedelta.max}, InvalidSchedule, "end before the year 2255"),
        ({"start": datetime(1969, 12, 31, tzinfo=UTC)}, InvalidSchedule, "between the years 1970 and 2255"),
        ({"start": datetime(2256, 1, 1, tzinfo=UTC)}, InvalidSchedule, "between the years 1970 and 2255"),
        ({"every": timedelta(days=200_000)}, InvalidSchedule, "no occurrence before the year 2255"),
        ({"every": None, "cron": "0 9 1 1 *", "tz": "UTC", "jitter": 366 * 86_400}, InvalidSchedule, "31536000 s"),
        ({"pause_after": 0}, InvalidSchedule, "pause_after must be a whole number, 1 to 255"),
        ({"pause_after": True}, InvalidSchedule, "pause_after"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], error: type[DelayQError], text: str) -> None:
    with pytest.raises(error, match=text):
        made(**options)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"every": None, "cron": "0 9 * * mon-fri", "tz": "Europe/Berlin", "jitter": 60, "overlap": "stop"},
        {"start": NOW, "end": NOW + timedelta(days=1), "catch_up": "none", "window": 5, "pause_after": 3},
    ],
)
def test_a_stored_schedule_is_read_again(options: dict[str, Any]) -> None:
    schedule = made(**options)
    assert Schedule.unpack(schedule.pack()) == schedule


def test_the_jitter_of_a_rule_with_rare_occurrences_may_be_long() -> None:
    assert made(every=None, cron="0 9 1 * *", tz="UTC", jitter=timedelta(days=27)).jitter_us == 27 * 24 * HOUR
    assert made(every=None, cron="30 9,21 * * *", tz="Europe/Berlin", jitter=timedelta(hours=10)).jitter_us == 10 * HOUR


def test_nothing_is_due_or_begins_after_the_last_moment_that_a_score_holds() -> None:
    last = 2**53 - 1
    assert Every(HOUR, last // HOUR * HOUR + HOUR).next_after(0) is None
    assert Every(HOUR).next_after(last - HOUR) == last // HOUR * HOUR
    assert Schedule(name="a", rule=Every(HOUR), jitter_us=HOUR).due_us(last) == last


def test_without_the_package_of_a_rule_a_stored_schedule_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = made(every=None, cron="7 9 * * *", tz="UTC").pack()
    make_cron.cache_clear()
    monkeypatch.setitem(sys.modules, "cronsim", None)
    with pytest.raises(InvalidSchedule, match="needs the package cronsim"):
        Schedule.unpack(stored)


def test_a_usual_schedule_takes_few_bytes() -> None:
    assert len(made(every=None, cron="0 9 * * mon-fri", tz="Europe/Berlin").pack()) <= 50


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b"[]",
        b"{}",
        b'["a"]',
        b'["a",7]',
        b'[1,"every 60 from 0"]',
        b'["a","fortnightly"]',
        b'["a","every 60 from 0",7]',
        b'["a","every 60 from 0",{"o":"queue"}]',
        b'["a","every 60 from 0",{"o":["skip"]}]',
        b'["a","every 60 from 0",{"j":-1}]',
        b'["a","every 60 from 0",{"e":1.5}]',
        # A later release has more options.
        b'["a","every 60 from 0",{"holidays":"de"}]',
        b'["a","every 60 from 0",{},7]',
        b"[" * 100_000,
        b'["a","every 60 from 0",{"w":9223372036854775808}]',
        b'["a","every 60 from 0",{"j":1' + b"0" * 400 + b"}]",
        b"\xff",
    ],
)
def test_what_this_release_cannot_read_is_one_error(stored: bytes) -> None:
    with pytest.raises(InvalidSchedule, match="this release cannot read"):
        Schedule.unpack(stored)
