"""Rows of django-celery-beat's real tables: which become schedules, and what is reported of the others."""

import doctest
import json
import os
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import transaction
from django_celery_beat.models import (
    ClockedSchedule,
    CrontabSchedule,
    IntervalSchedule,
    PeriodicTask,
    SolarSchedule,
)

from django_delayq import Recurring, delayed_task, get_store
from django_delayq.dispatcher.declarer import Declarer
from django_delayq.store.promotion import Promotion
from django_delayq.task import registry
from django_delayq.task.recurring.celery_beat import copy_periodic_tasks
from django_delayq.testing import DelayQ
from tests.sample_app import django_tasks
from tests.shard_apis import NINE

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def delayq(registered: Any) -> Any:
    """A queue of this test, at nine on a Monday of the time to come."""
    registered()
    with DelayQ() as queue:
        queue.advance_to(NINE)
        yield queue


@pytest.fixture
def report() -> Any:
    """A task; its name in Celery was another one."""
    return declare()


def take_all(*args: Any, **kwargs: Any) -> None: ...


def take_nothing() -> None: ...


def declare(func: Any = take_all, **options: Any) -> Any:
    """Register the task of these tests."""
    return delayed_task(name="shop.report", aliases=["proj.tasks.report"], **options)(func)


def row(name: str, task: str = "shop.report", **fields: Any) -> PeriodicTask:
    """Return a stored row; it runs each hour if nothing else is given."""
    if not fields.keys() & {"crontab", "clocked", "solar", "interval"}:
        fields["interval"] = every(1, "hours")
    return PeriodicTask.objects.create(name=name, task=task, **fields)


def every(number: int, period: str) -> IntervalSchedule:
    return IntervalSchedule.objects.create(every=number, period=period)


def clocked(moment: datetime) -> ClockedSchedule:
    return ClockedSchedule.objects.create(clocked_time=moment)


def reasons(tasks: Any = None, **options: Any) -> dict[str, str]:
    """Copy, and return why each skipped row was."""
    return {each.name: each.reason for each in copy_periodic_tasks(tasks, **options).skipped}


def test_rows_become_schedules_of_the_same_names(delayq: DelayQ, report: Any) -> None:
    row("hourly", args="[42]", kwargs='{"kind": "short"}', start_time=NINE)
    orders = CrontabSchedule.objects.create(minute="0", hour="9", day_of_week="mon-fri", timezone="Europe/Berlin")
    row("orders", task="proj.tasks.report", crontab=orders)
    copied = copy_periodic_tasks()
    assert not copied.skipped
    assert [(each.name, each.task, each.notes) for each in copied.copied] == [
        ("hourly", "shop.report", []),
        ("orders", "shop.report", []),
    ]
    assert copied.copied[1].rule == "0 9 * * 1-5 in Europe/Berlin"
    assert [each.isoformat() for each in report.schedules.get("orders").next(2)] == [
        "2100-01-05T09:00:00+01:00",
        "2100-01-06T09:00:00+01:00",
    ]
    ran = delayq.advance(hours=2, run=True)
    assert [(each.task, each.args, each.kwargs) for each in ran] == [("shop.report", [42], {"kind": "short"})] * 2


def test_an_interval_counts_from_the_last_run(report: Any) -> None:
    row("daily", interval=every(1, "days"))
    PeriodicTask.objects.update(last_run_at=datetime(2100, 1, 3, 3, 12, 5, 400_000, UTC))
    copy_periodic_tasks()
    assert report.schedules.get("daily").next()[0] == datetime(2100, 1, 5, 3, 12, 6, tzinfo=UTC)


def test_a_row_that_never_ran_counts_from_its_last_change(report: Any) -> None:
    changed = row("daily", interval=every(1, "days")).date_changed
    copy_periodic_tasks()
    assert (report.schedules.get("daily").next()[0] - changed) % timedelta(days=1) <= timedelta(seconds=1)


def test_start_and_end_are_copied(report: Any) -> None:
    start, end = NINE + timedelta(days=2, minutes=7), NINE + timedelta(days=2, hours=2)
    row("bounded", start_time=start, expires=end)
    nine = CrontabSchedule.objects.create(minute="0", hour="9")
    row("bounded cron", crontab=nine, start_time=start, expires=end + timedelta(days=1))
    PeriodicTask.objects.update(last_run_at=NINE)
    row("ended", expires=NINE)
    assert "end=2100-01-04 09:00:00+00:00 is not after now" in reasons()["ended"]
    assert report.schedules.get("bounded").next(9) == [start, start + timedelta(hours=1)]
    assert report.schedules.get("bounded cron").next(9) == [NINE + timedelta(days=3)]


def test_a_job_that_comes_late_expires_as_its_message_would(delayq: DelayQ, report: Any) -> None:
    row("fresh", start_time=NINE + timedelta(hours=1), expire_seconds=60)
    row("old", start_time=NINE + timedelta(hours=1), expire_seconds=0)
    copy_periodic_tasks()
    # Their jobs are planted.
    assert delayq.run_due() == []
    delayq.advance(hours=1, minutes=2)
    delayq.run_due()
    fresh, old = (report.schedules.get(name).last for name in ("fresh", "old"))
    assert (fresh.outcome, old.outcome) == ("expired", "done")


def test_a_row_that_is_not_enabled_is_a_paused_schedule(report: Any) -> None:
    off = row("off", enabled=False)
    row("on")
    copied = copy_periodic_tasks()
    assert [each.notes for each in copied.copied] == [["paused, because it is not enabled"], []]
    assert [report.schedules.get(name).is_paused for name in ("off", "on")] == [True, False]
    report.schedules.pause("on")
    off.enabled = True
    off.save()
    copy_periodic_tasks()
    assert [report.schedules.get(name).is_paused for name in ("off", "on")] == [True, True]


def test_a_repeated_copy_changes_nothing_until_a_row_has_changed(delayq: DelayQ, report: Any) -> None:
    hourly = row("hourly", start_time=NINE)
    copy_periodic_tasks()
    delayq.advance(minutes=30, run=True)
    planted = report.schedules.get("hourly").job_id
    assert planted
    copy_periodic_tasks()
    assert report.schedules.get("hourly").job_id == planted
    hourly.interval = every(20, "minutes")
    hourly.save()
    copy_periodic_tasks()
    assert report.schedules.get("hourly").next()[0] == NINE + timedelta(minutes=40)
    assert get_store().schedules(0).count() == 1


def test_a_clocked_row_is_one_delayed_job(delayq: DelayQ, report: Any) -> None:
    noon = NINE.replace(hour=12)
    launch = row("launch", clocked=clocked(noon), one_off=True, args='["x"]')
    row("past", clocked=clocked(NINE - timedelta(hours=1)), one_off=True)
    row("off", clocked=clocked(noon), one_off=True, enabled=False)
    copied = copy_periodic_tasks()
    assert [(each.name, each.rule) for each in copied.copied] == [("launch", "at 2100-01-04T12:00:00+00:00")]
    assert "has passed" in reasons()["past"]
    assert "not enabled" in reasons()["off"]
    delayq.assert_enqueued(report, args=["x"], due=noon, count=1)
    launch.clocked = clocked(noon + timedelta(hours=1))
    launch.save()
    copy_periodic_tasks()
    delayq.assert_enqueued(report, args=["x"], due=noon + timedelta(hours=1), count=1)
    assert len(delayq.enqueued) == 1


def test_rows_that_are_not_supported_are_skipped_with_the_reason(report: Any) -> None:
    sunrise = SolarSchedule.objects.create(event="sunrise", latitude=52, longitude=13)
    row("solar", solar=sunrise)
    row("once", one_off=True)
    row("fast", interval=every(500_000, "microseconds"))
    row("unknown", task="shop.tasks.gone")
    row("no list", args='{"a": 1}')
    row("no json", kwargs="{a: 1}")
    row("no day", crontab=CrontabSchedule.objects.create(day_of_month="30", month_of_year="2"))
    row("both days", crontab=CrontabSchedule.objects.create(day_of_month="13", day_of_week="5"))
    typed = {"when": {"__type__": "datetime", "__value__": "2027-01-01T00:00:00"}}
    row("typed", kwargs=json.dumps(typed))
    row("ä" * 101)
    found = reasons()
    assert get_store().schedules(0).count() == 0
    assert found.pop("ä" * 101).startswith("the name of a schedule must be text of 1 to 200 bytes")
    expected = {
        "solar": "solar schedules are not supported",
        "once": "it runs only once (one_off)",
        "fast": "must be whole seconds",
        "unknown": "no task is registered as 'shop.tasks.gone'",
        "no list": "its args must be a JSON list",
        "no json": "its kwargs cannot be read",
        "no day": "30",
        "both days": "Celery runs it on days that match both",
        "typed": "they have a value of the type 'datetime'",
    }
    assert found.keys() == expected.keys()
    assert all(words in found[name] for name, words in expected.items()), found


def test_arguments_that_do_not_fit_are_a_reason() -> None:
    declare(take_nothing)
    row("unfit", args="[1]")
    assert "too many positional arguments" in reasons()["unfit"]


def test_options_that_are_not_copied_are_reported(report: Any) -> None:
    row("all", queue="mail", priority=3, routing_key="x", headers='{"a": 1}')
    row("none", queue="default", headers="{}")
    notes = {each.name: each.notes for each in copy_periodic_tasks().copied}
    assert notes == {
        "all": [
            "its jobs go to the queue 'default' of the task, not to 'mail'",
            "without its priority, routing_key, headers",
        ],
        "none": [],
    }


def test_other_names_are_mapped_to_tasks(report: Any) -> None:
    row("by task", task="old.first")
    row("by name", task="old.second")
    row("by wrong name", task="old.third")
    row("of Django", task=django_tasks.add.module_path, args="[1, 2]")
    tasks = {"old.first": report, "old.second": "proj.tasks.report", "old.third": "shop.gone"}
    assert reasons(tasks) == {"by wrong name": "no task is registered as 'shop.gone'; give its task in tasks="}
    assert sorted(each.name for each in report.schedules.iter()) == ["by name", "by task"]
    assert registry.find(django_tasks.add.module_path).schedules.get("of Django")
    with pytest.raises(TypeError, match=r"tasks\['old.first'\] must be a task of @delayed_task or a registered name"):
        copy_periodic_tasks({"old.first": print})


def test_a_dry_run_stores_nothing_and_returns_the_same(delayq: DelayQ, report: Any) -> None:
    row("hourly")
    row("off", enabled=False)
    row("launch", clocked=clocked(NINE + timedelta(hours=3)), one_off=True)
    row("once", one_off=True)
    dry = copy_periodic_tasks(dry_run=True)
    assert get_store().schedules(0).count() == 0
    assert delayq.enqueued == []
    assert copy_periodic_tasks() == dry
    assert str(dry).splitlines()[1:] == [
        "copied 'launch' to shop.report: at 2100-01-04T12:00:00+00:00",
        f"copied 'off' to shop.report: {dry.copied[2].rule} (paused, because it is not enabled)",
        "skipped 'once' of shop.report: it runs only once (one_off); enqueue a job with at=",
    ]


def test_a_schedule_of_the_code_stays_as_it_is() -> None:
    report = declare(recurring=[Recurring("nightly", cron="0 3 * * *")])
    shard = get_store().shards[0]
    Declarer(get_store(), shard, process=Promotion(shard).dispatcher_id).step()
    row("nightly")
    row("other")
    assert reasons(dry_run=True) == reasons()
    assert list(reasons()) == ["nightly"]
    assert report.schedules.get("nightly").is_declared


def test_schedules_are_stored_at_once_even_inside_a_transaction(delayq: DelayQ, report: Any) -> None:
    row("off", enabled=False)
    row("launch", clocked=clocked(NINE + timedelta(hours=3)), one_off=True)
    with transaction.atomic():
        copy_periodic_tasks()
        assert report.schedules.get("off").is_paused
        assert len(delayq.enqueued) == 1


def test_the_session_of_the_page_about_migrating_runs_as_shown() -> None:
    for name in ("send_digest", "report", "lights"):
        delayed_task(name=f"shop.tasks.{name}")(take_all)
    sunset = SolarSchedule.objects.create(event="sunset", latitude=52, longitude=13)
    eight = CrontabSchedule.objects.create(hour="8", minute="0", timezone="Asia/Tokyo")
    first = CrontabSchedule.objects.create(hour="6", minute="0", day_of_month="1", timezone="UTC")
    row("digest:42", "shop.tasks.send_digest", crontab=eight)
    row("old", "shop.tasks.report", crontab=first, enabled=False)
    row("celery.backend_cleanup", "celery.backend_cleanup")
    row("sunset", "shop.tasks.lights", solar=sunset)
    names = {"send_digest": registry.registered("shop.tasks.send_digest")}
    session = doctest.DocTestParser().get_doctest(os.environ["SESSION"], names, "session", None, 0)
    # The last line prints a report that the page leaves out.
    session.examples.pop()
    assert doctest.DocTestRunner().run(session).failed == 0
