"""Wrong input: each error names the argument and the cure, and nothing is stored."""

import sys
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_delayq.exceptions import (
    InvalidDelay,
    InvalidMoment,
    InvalidSchedule,
    PayloadNotSerializable,
    PayloadTooLarge,
    StoreUnavailable,
)
from django_delayq.recurring.cron import make_cron
from django_delayq.testing import DelayQ
from tests.sample_app.tasks import fail, noop
from tests.shard_apis import NINE

HOUR, INF, NAN = timedelta(hours=1), float("inf"), float("nan")
CRON = {"every": None, "cron": "0 9 * * *"}


class OwnZone(tzinfo):
    """A time zone that no other process knows."""


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"every": None}, InvalidSchedule, "needs either every= or cron="),
    ({"cron": "0 9 * * *"}, InvalidSchedule, "either every= or cron=, not both"),
    ({"every": 0}, InvalidSchedule, "every=0 must be whole seconds, at least 1"),
    ({"every": 0.5}, InvalidSchedule, "every=0.5 must be whole seconds, at least 1"),
    ({"every": timedelta(microseconds=1)}, InvalidSchedule, "whole seconds, at least 1"),
    ({"every": -1}, InvalidDelay, "every must not be negative"),
    ({"every": True}, InvalidDelay, "every must be a number of seconds or a timedelta, got bool"),
    ({"every": "60"}, InvalidDelay, "every must be a number of seconds or a timedelta, got str"),
    ({"every": NAN}, InvalidDelay, "every must be a finite number"),
    ({"every": INF}, InvalidDelay, "every must be a finite number"),
    ({"every": 10**400}, InvalidSchedule, "no occurrence before the year 2255: it would never run"),
    ({"every": timedelta(days=200_000)}, InvalidSchedule, "no occurrence before the year 2255"),
    ({"every": 60, "tz": "UTC"}, InvalidSchedule, "tz= is for cron="),
    ({**CRON, "cron": "0 0 30 2 *"}, InvalidSchedule, r"cron='0 0 30 2 \*' cannot be read \(bad day-of-month\)"),
    ({**CRON, "cron": ""}, InvalidSchedule, "wrong number of fields"),
    ({**CRON, "cron": "\ud800 * * * *"}, InvalidSchedule, "bad minute"),
    ({**CRON, "cron": 5}, InvalidSchedule, "cron must be a string such as '0 9"),
    ({**CRON, "cron": "0," * 40_000 + "0 * * * *"}, InvalidSchedule, "has 80,009 characters, more than 1,000"),
    ({**CRON, "tz": "Berlin"}, InvalidSchedule, "did you mean 'Europe/Berlin'"),
    ({**CRON, "tz": ""}, InvalidSchedule, "is no time zone that this machine knows"),
    ({**CRON, "tz": "../../etc/passwd"}, InvalidSchedule, "is no time zone"),
    ({**CRON, "tz": "a\0b"}, InvalidSchedule, "is no time zone"),
    ({**CRON, "tz": "\ud800"}, InvalidSchedule, "is no time zone"),
    ({**CRON, "tz": timezone(HOUR)}, InvalidSchedule, "tz must be the name of a time zone such as 'Europe/Berlin'"),
    ({**CRON, "tz": OwnZone()}, InvalidSchedule, "tz must be the name of a time zone"),
    ({**CRON, "tz": 1}, InvalidSchedule, "tz must be the name of a time zone"),
    ({"start": datetime(2027, 1, 5)}, InvalidMoment, "start must be an aware datetime, got a naive one"),
    ({"start": date(2027, 1, 5)}, InvalidMoment, "start must be an aware datetime, got date"),
    ({"start": datetime(1960, 1, 1, tzinfo=UTC)}, InvalidSchedule, "start=1960.* between the years 1970 and 2255"),
    ({"start": datetime(2256, 1, 1, tzinfo=UTC)}, InvalidSchedule, "between the years 1970 and 2255"),
    ({"start": datetime.max.replace(tzinfo=UTC)}, InvalidSchedule, "between the years 1970 and 2255"),
    ({**CRON, "start": datetime.min.replace(tzinfo=UTC)}, InvalidSchedule, "between the years 1970 and 2255"),
    ({"end": datetime(2027, 1, 5)}, InvalidMoment, "end must be an aware datetime, got a naive one"),
    ({"end": "2027-01-05"}, InvalidMoment, "end must be an aware datetime, got str"),
    ({"end": NINE}, InvalidSchedule, "end=.* is not after now: the schedule would never run"),
    ({"end": NINE + HOUR, "start": NINE + HOUR}, InvalidSchedule, "end=.* is not after start"),
    ({"end": NINE + HOUR / 2}, InvalidSchedule, "no occurrence before its end: it would never run"),
    ({"jitter": 3_600}, InvalidSchedule, "jitter=3600 must be shorter .* which is 3600 s"),
    ({"jitter": -1}, InvalidDelay, "jitter must not be negative"),
    ({"jitter": NAN}, InvalidDelay, "jitter must be a finite number"),
    ({"jitter": True}, InvalidDelay, "jitter must be a number of seconds or a timedelta, got bool"),
    ({"overlap": "queue"}, InvalidSchedule, "overlap must be one of 'skip', 'wait', 'stop', 'allow', got 'queue'"),
    ({"overlap": None}, InvalidSchedule, "overlap must be one of"),
    ({"overlap": ["skip"]}, InvalidSchedule, "overlap must be one of"),
    ({"catch_up": True}, InvalidSchedule, "catch_up must be one of 'none', 'last', 'all', got True"),
    ({"catch_up": "all"}, InvalidSchedule, "catch_up='all' needs overlap='wait' or 'allow'"),
    ({"window": 60}, InvalidSchedule, "window= is for catch_up='none'"),
    ({"catch_up": "none", "window": 0}, InvalidSchedule, "window=0 must be at least 1 second"),
    ({"catch_up": "none", "window": timedelta.max}, InvalidSchedule, "end before the year 2255"),
    ({"catch_up": "none", "window": -1}, InvalidDelay, "window must not be negative"),
    ({"pause_after": 0}, InvalidSchedule, "pause_after must be a whole number, 1 to 255, got 0"),
    ({"pause_after": True}, InvalidSchedule, "pause_after must be a whole number, 1 to 255, got True"),
    ({"args": "abc"}, TypeError, "args must be a list of positional arguments, got str"),
    ({"args": b"abc"}, TypeError, "args must be a list of positional arguments, got bytes"),
    ({"args": {"a": 1}}, TypeError, "args must be a list .* got dict; a dict is for kwargs="),
    ({"args": {1, 2}}, TypeError, "args must be a list of positional arguments, got set"),
    ({"args": 5}, TypeError, "args must be a list of positional arguments, got int"),
    ({"args": [NINE]}, PayloadNotSerializable, r"args\[0\] is a datetime"),
    ({"args": [NAN]}, PayloadNotSerializable, r"args\[0\] is nan"),
    ({"args": ["x" * 300_000]}, PayloadTooLarge, "MAX_PAYLOAD"),
    ({"kwargs": "abc"}, TypeError, "kwargs must be a dict of keyword arguments, got str"),
    ({"kwargs": [("a", 1)]}, TypeError, "kwargs must be a dict of keyword arguments, got list"),
    ({"kwargs": {1: 2}}, TypeError, "keywords must be strings"),
    ({"kwargs": {"a": object()}}, PayloadNotSerializable, r"kwargs\['a'\] is a object"),
    ({"evry": 60}, TypeError, "unexpected keyword argument 'evry'"),
]


@pytest.mark.parametrize(("options", "error", "text"), WRONG)
def test_a_wrong_option_is_refused(delayq: DelayQ, options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        noop.schedules.set("a", **{"every": HOUR, **options})
    assert len(str(caught.value)) < 500
    assert noop.schedules.get("a") is None


@pytest.mark.parametrize("name", ["", "a" * 201, "ü" * 100 + "a", None, b"a", ["a"]])
def test_a_wrong_name_is_refused_everywhere(delayq: DelayQ, name: Any) -> None:
    for call in (
        lambda: noop.schedules.set(name, every=HOUR),
        lambda: noop.schedules.get(name),
        lambda: noop.schedules.delete("a", name),
        lambda: noop.schedules.pause(name),
        lambda: noop.schedules.resume(name),
    ):
        with pytest.raises(InvalidSchedule, match="the name of a schedule must be text of 1 to 200 bytes, got "):
            call()
    assert list(noop.schedules.iter()) == []


@pytest.mark.parametrize("name", ["a" * 200, "ü" * 100, "\ud800", "\U0001f600" * 50, "a\0b", " ", "{a}:*\n"])
def test_any_text_of_1_to_200_bytes_is_a_name(delayq: DelayQ, name: str) -> None:
    noop.schedules.set(name, cron="0,15,30,45 9-17/2 * jan-jun,oct mon-fri", tz="America/Argentina/ComodRivadavia")
    found = noop.schedules.get(name)
    assert found and found.name == name and found.next()
    assert [each.name for each in noop.schedules.iter(name[:1])] == [name]
    [ran, *_] = delayq.advance(days=1, run=True)
    assert ran.schedule == name


def test_arguments_that_do_not_fit_the_task_are_refused(delayq: DelayQ) -> None:
    with pytest.raises(TypeError, match=r"do not fit the task tests\.sample_app\.tasks\.fail: too many positional"):
        fail.schedules.set("a", every=HOUR, args=[1, 2])
    with pytest.raises(TypeError, match="unexpected keyword argument 'times_'"):
        fail.schedules.set("a", every=HOUR, kwargs={"times_": 2})
    assert list(fail.schedules.iter()) == []


@pytest.mark.parametrize("task", [noop.after(60), noop.at(datetime.now(UTC))])
def test_a_time_of_single_jobs_is_refused(delayq: DelayQ, task: Any) -> None:
    with pytest.raises(InvalidSchedule, match="the rule of a schedule sets the times of its jobs; leave out delay, at"):
        task.schedules.set("a", every=HOUR)
    assert noop.schedules.get("a") is None


@pytest.mark.parametrize("prefix", [None, 5, b"a"])
def test_iter_refuses_what_is_no_text(delayq: DelayQ, prefix: Any) -> None:
    with pytest.raises(TypeError, match="prefix must be the beginning of names"):
        noop.schedules.iter(prefix)


@pytest.mark.parametrize(
    "tz",
    [UTC, timezone.utc, "UTC", ZoneInfo("UTC"), ZoneInfo.no_cache("Etc/UTC"), None],  # noqa: UP017
)
def test_time_zones_are_names_or_objects_with_a_name(delayq: DelayQ, settings: Any, tz: Any) -> None:
    settings.TIME_ZONE = "UTC"
    noop.schedules.set("a", cron="0 10 * * *", tz=tz)
    found = noop.schedules.get("a")
    assert found and found.next() == [NINE + HOUR]


def test_the_default_time_zone_is_the_one_of_the_project(delayq: DelayQ, settings: Any) -> None:
    settings.TIME_ZONE = "Asia/Kolkata"
    noop.schedules.set("a", cron="0 15 * * *")
    settings.TIME_ZONE = "UTC"
    found = noop.schedules.get("a")
    assert found and found.next() == [NINE + HOUR / 2]


def test_without_cronsim_intervals_work_and_cron_names_the_package(
    delayq: DelayQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_cron.cache_clear()
    monkeypatch.setitem(sys.modules, "cronsim", None)
    noop.schedules.set("a", every=HOUR)
    with pytest.raises(ImproperlyConfigured, match=r"pip install 'django-delayq\[cron\]'"):
        noop.schedules.set("b", cron="0 9 * * *")


def test_without_redis_each_call_raises_a_store_error(delayq: DelayQ) -> None:
    noop.schedules.set("a", every=HOUR)
    found = noop.schedules.get("a")
    assert found
    with delayq.unavailable():
        for call in (
            lambda: noop.schedules.set("b", every=HOUR),
            lambda: noop.schedules.set_many([{"name": "b", "every": HOUR}]),
            lambda: noop.schedules.get("a"),
            lambda: noop.schedules.delete("a"),
            lambda: list(noop.schedules.iter()),
            found.refresh,
            found.pause,
            found.resume,
            found.delete,
            found.run_now,
        ):
            with pytest.raises(StoreUnavailable):
                call()
        assert found.next()
    assert [each.name for each in noop.schedules.iter()] == ["a"]
