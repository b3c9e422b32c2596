"""Declarations: the schedules of the code of the process that started last are stored, as long as one like it lives."""

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.checks import run_checks

from django_delayq import Recurring, delayed_task, get_store
from django_delayq.dispatcher.declarer import Declarer
from django_delayq.store.process_reports import ProcessReports
from django_delayq.store.promotion import Promotion
from django_delayq.store.schedules.schedule_declarations import ScheduleDeclarations
from django_delayq.task import registry
from django_delayq.testing.local_redis import LocalRedisServer
from tests.sample_app.tasks import noop

pytestmark = pytest.mark.usefixtures("delayq_settings", "own_registry")


class Process:
    """The dispatcher of a process, which declares what its code says."""

    def __init__(self) -> None:
        self._store = get_store()
        self._shard = self._store.shards[0]
        self._promotion = Promotion(self._shard)
        self._now = 0.0
        self._declarer = Declarer(
            self._store, self._shard, process=self._promotion.dispatcher_id, clock=lambda: self._now
        )

    def start(self) -> "Process":
        """Make what the code declares now, and look a first time."""
        self._promotion.promote([])
        self._declarer.step()
        return self

    def look(self) -> None:
        """Look again, a minute later."""
        self._now += 61.0
        self._declarer.step()

    def end(self) -> None:
        """Leave, as a process that is stopped."""
        ProcessReports(self._shard).deregister(self._promotion.dispatcher_id, {})


def declare(**options: Any) -> Any:
    """Register the task of the code, in place of the one of other code."""

    def report(which: str = "") -> None: ...

    report.__qualname__ = "report"
    registry._tasks.pop("shop.report", None)
    return delayed_task(name="shop.report", **options)(report)


def names() -> list[str]:
    found = registry.get("shop.report").schedules.iter()
    return sorted(each.name for each in found)


def test_a_dispatcher_stores_what_the_code_declares() -> None:
    task = declare(every=timedelta(minutes=5), recurring=[Recurring("morning", cron="0 9 * * *", tz="Asia/Tokyo")])
    Process().start()
    assert names() == ["default", "morning"]
    found = task.schedules.get("morning")
    assert found.is_declared
    assert found.next()[0].isoformat().endswith("T09:00:00+09:00")
    with pytest.raises(ValueError, match="declared in the code"):
        task.schedules.set("morning", every=60)
    with pytest.raises(ValueError, match="declared in the code"):
        found.delete()
    assert found.pause()
    assert found.refresh().is_paused


def test_nothing_is_stored_for_code_that_declares_nothing(delayq_settings: Any) -> None:
    Process().start()
    assert ScheduleDeclarations(get_store().shards[0]).declared_by() is None


@pytest.mark.parametrize("ends", ["stopped", "living"])
def test_a_rolling_deploy_ends_with_the_schedules_of_the_new_code(ends: str) -> None:
    declare(every=60, recurring=[Recurring("old", every=60)])
    old = Process().start()
    declare(every=30, recurring=[Recurring("new", every=60)])
    new = Process().start()
    old.look()
    assert names() == ["default", "new"]
    if ends == "stopped":
        old.end()
    new.look()
    assert names() == ["default", "new"]


def test_a_rollback_ends_with_the_schedules_of_the_old_code() -> None:
    declare(recurring=[Recurring("old", every=60)])
    old = Process().start()
    declare(recurring=[Recurring("new", every=60)])
    new = Process().start()
    assert names() == ["new"]
    new.end()
    old.look()
    assert names() == ["old"]


def test_an_old_process_that_restarts_during_a_deploy_does_not_win_for_good() -> None:
    declare(recurring=[Recurring("new", every=60)])
    new = Process().start()
    declare(recurring=[Recurring("old", every=60)])
    restarted = Process().start()
    assert names() == ["old"]
    restarted.end()
    new.look()
    assert names() == ["new"]


def test_a_living_process_stands_for_one_of_equal_code_that_is_gone() -> None:
    declare(recurring=[Recurring("old", every=60)])
    old = Process().start()
    declare(recurring=[Recurring("new", every=60)])
    first, second = Process().start(), Process().start()
    first.end()
    second.look()
    old.look()
    assert names() == ["new"]


def test_a_host_whose_clock_is_ahead_knows_that_the_new_dispatcher_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    declare(recurring=[Recurring("old", every=60)])
    old = Process().start()
    declare(recurring=[Recurring("new", every=60)])
    Process().start()
    two_minutes_ahead = time.time_ns() + 120 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: two_minutes_ahead)
    old.look()
    assert names() == ["new"]


def test_a_declaration_that_comes_back_has_forgotten_its_pause_and_its_outcomes() -> None:
    task = declare(recurring=[Recurring("a", every=60)])
    before = Process().start()
    assert task.schedules.get("a").pause()
    task = declare()
    without = Process().start()
    assert names() == []
    declare(recurring=[Recurring("a", every=60)])
    without.end()
    before.end()
    Process().start()
    found = registry.get("shop.report").schedules.get("a")
    assert (found.is_paused, found.runs) == (False, [])


def test_declared_schedules_of_a_renamed_task_begin_again() -> None:
    declare(recurring=[Recurring("a", every=60)])
    Process().start()
    registry._tasks.clear()
    renamed = delayed_task(name="shop.statement", aliases=["shop.report"], every=60)(noop.func)
    Process().start()
    assert [(each.name, each.task) for each in renamed.schedules.iter()] == [("default", "shop.statement")]


def test_one_that_cannot_be_made_hurts_no_other(caplog: pytest.LogCaptureFixture, delayq_settings: Any) -> None:
    recurring = {
        "unknown": {"task": "shop.gone", "every": 60},
        "refused": {"task": "shop.report", "every": 60, "args": ["x" * 2_000]},
        "fine": {"task": "shop.report", "every": 60},
    }
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "RECURRING": recurring, "MAX_PAYLOAD": 1_024}
    declare()
    with caplog.at_level(logging.ERROR, "django_delayq"):
        Process().start()
    assert names() == ["fine"]
    assert sorted(record.getMessage() for record in caplog.records) == [
        "Recurring schedule 'refused' of shop.report is not stored",
        "Recurring schedule 'unknown' is not stored: no task of this store is registered as 'shop.gone'",
    ]


def test_a_redis_that_accepts_no_schedules_is_a_warning(
    caplog: pytest.LogCaptureFixture, start_redis: Callable[..., LocalRedisServer], delayq_settings: Any
) -> None:
    server = start_redis()
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "REDIS": server.url}
    client = server.client()
    declare(every=60)
    process = Process()
    client.config_set("maxmemory", 1)
    process.start()
    assert "could not be stored; trying again" in caplog.text
    client.config_set("maxmemory", 0)
    assert names() == []
    process.look()
    assert names() == ["default"]


def test_settings_declare_schedules_for_tasks_of_others(delayq_settings: Any) -> None:
    recurring = {
        "nightly": {"task": noop.name, "cron": "0 3 * * *", "args": [1]},
        "default": {"task": "shop.report", "every": 7},
    }
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "RECURRING": recurring}
    task = declare(every=60)
    Process().start()
    found = noop.schedules.get("nightly")
    assert found
    assert found.is_declared
    # Those of settings stand above those of the code.
    first, second = task.schedules.get("default").next(2)
    assert second - first == timedelta(seconds=7)


def test_a_schedule_that_is_over_is_not_declared(caplog: pytest.LogCaptureFixture) -> None:
    declare(recurring=[Recurring("campaign", every=60, end=datetime(2222, 1, 1, tzinfo=UTC))])
    Process().start()
    assert names() == ["campaign"]
    declare(recurring=[Recurring("campaign", every=60, end=datetime(2020, 1, 1, tzinfo=UTC))])
    with caplog.at_level(logging.ERROR, "django_delayq"):
        Process().start()
    assert names() == []
    assert not caplog.records
    (found,) = [each for each in run_checks() if each.id == "delayq.W023"]
    assert "'campaign' of the task shop.report has ended" in found.msg


def test_checks_of_the_settings(delayq_settings: Any) -> None:
    declare()
    recurring = {
        "unknown": {"task": "shop.reprot", "every": 60},
        "unfit": {"task": "shop.report", "every": 60, "kwargs": {"who": 1}},
    }
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "RECURRING": recurring}
    found = {each.id: each.msg for each in run_checks()}
    assert "names the task 'shop.reprot' (did you mean 'shop.report'?)" in found["delayq.E021"]
    assert "schedule 'unfit' do not fit the task shop.report: got an unexpected keyword" in found["delayq.E022"]


def test_a_queue_that_is_not_declared_is_found_before_the_dispatcher_stores_nothing(delayq_settings: Any) -> None:
    declare(every=60, queue="mial")
    assert "delayq.E024" not in {each.id for each in run_checks()}
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "QUEUES": {"mail": {}}}
    (found,) = [each for each in run_checks() if each.id == "delayq.E024"]
    words = "The schedule 'default' of the task shop.report can have no jobs: queue 'mial' is not declared in "
    assert found.msg.startswith(f"{words}DELAYQ['QUEUES'] (did you mean 'mail'?)")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"every": 0}, "every=0 must be whole seconds, at least 1"),
        ({"every": 0.5}, "at least 1"),
        ({"every": 60, "cron": "* * * * *"}, "either every= or cron="),
        ({"tz": "UTC"}, "either every= or cron="),
        ({"cron": "0 0 30 2 *"}, "cron='0 0 30 2 \\*' cannot be read"),
        ({"cron": "0 9 * * *", "tz": "Europe/Berlim"}, "Berlim"),
        ({"recurring": Recurring("a", every=60)}, r"recurring must be a list such as \[Recurring"),
        ({"recurring": ["morning"]}, r"recurring must be a list of Recurring"),
        ({"recurring": [Recurring("a", every=60)] * 2}, "two schedules 'a'"),
        ({"every": 60, "recurring": [Recurring("default", every=9)]}, "two schedules 'default', which every="),
        ({"recurring": [Recurring("a", every=60, args=[1, 2])]}, "the arguments of the schedule 'a' do not fit"),
        ({"recurring": [Recurring("a", every=60, args=[{1}])]}, "use a list"),
    ],
)
def test_wrong_declarations_are_refused_at_import(options: dict[str, Any], words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        declare(**options)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Recurring("", every=60), "1 to 200 bytes, got ''"),
        (lambda: Recurring("ä" * 101, every=60), "1 to 200 bytes"),
        (lambda: Recurring("a"), "either every= or cron="),
        (lambda: Recurring("a", every=60, args="abc"), "needs a list as args"),
        (lambda: Recurring("a", every=60, kwargs=[1]), "a dict as kwargs"),  # type: ignore[arg-type]
        (lambda: Recurring("a", every=60, jitter=60), "jitter=60 must be shorter"),
        (
            lambda: Recurring(
                "a", every=60, start=datetime(2027, 1, 2, tzinfo=UTC), end=datetime(2027, 1, 1, tzinfo=UTC)
            ),
            "is not after start",
        ),
        (lambda: Recurring("a", every=60, end=datetime(2027, 1, 1)), "end"),
    ],
)
def test_wrong_schedules_are_refused(make: Callable[[], Recurring], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()
