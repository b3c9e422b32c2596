"""Recurring schedules in a test of a project: they run as the clock moves, without a sleep."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_delayq import delayed_task
from django_delayq.exceptions import DelayQError
from django_delayq.job.outcome import OutcomeKind
from django_delayq.testing import DelayQ
from tests.shard_apis import NINE
from tests.testing_helpers.tasks import calls, charge, close_sale, give_up, send_reminder

HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def monday(delayq: DelayQ) -> None:
    """Begin at nine on a Monday."""
    delayq.advance_to(NINE)


def test_each_run_is_seen_when_the_clock_moves_over_days(delayq: DelayQ) -> None:
    send_reminder.schedules.set("digest:7", cron="30 8 * * mon-fri", tz="Europe/Berlin", args=[7])
    ran = delayq.advance(days=7, run=True)
    assert [(run.schedule, run.occurrence) for run in ran] == [
        ("digest:7", datetime(2100, 1, day, 7, 30, tzinfo=UTC)) for day in (5, 6, 7, 8, 11)
    ]
    assert calls == [(7, "letter")] * 5
    assert delayq.now - NINE >= timedelta(days=7)


def test_each_run_has_its_own_time(delayq: DelayQ) -> None:
    close_sale.schedules.set("a", every=HOUR, args=[1])
    delayq.advance(hours=2, minutes=1, run=True)
    # Each run enqueues a reminder for an hour later.
    assert sorted(map(str, calls)) == ["(1, 'letter')", "1", "1"]
    delayq.assert_enqueued(send_reminder, args=[1], due=NINE + 3 * HOUR)


def test_a_set_schedule_has_a_waiting_job_after_the_next_step(delayq: DelayQ) -> None:
    send_reminder.schedules.set("a", every=HOUR, args=[7])
    delayq.assert_not_enqueued(send_reminder)
    assert delayq.run_due() == []
    delayq.assert_enqueued(send_reminder, args=[7], due=NINE + HOUR, queue="mail", priority=10, count=1)


def test_run_due_runs_what_is_due_and_plants_the_next(delayq: DelayQ) -> None:
    send_reminder.schedules.set("a", every=HOUR, args=[7])
    delayq.advance(hours=1)
    assert delayq.ran == []
    [ran] = delayq.run_due()
    assert ran.occurrence == NINE + HOUR
    assert delayq.run_due() == []


def test_time_that_passes_without_runs_is_an_outage(delayq: DelayQ) -> None:
    send_reminder.schedules.set("last", every=HOUR, args=[1])
    send_reminder.schedules.set("none", every=HOUR, args=[2], catch_up="none")
    send_reminder.schedules.set("all", every=HOUR, args=[3], catch_up="all", overlap="allow")
    delayq.advance(hours=3, minutes=30)
    ran = [(run.schedule, run.occurrence) for run in delayq.run_due() if run.ending is OutcomeKind.SUCCEEDED]
    assert sorted(ran) == [
        ("all", NINE + HOUR),
        ("all", NINE + 2 * HOUR),
        ("all", NINE + 3 * HOUR),
        ("last", NINE + 3 * HOUR),
        ("none", NINE + 3 * HOUR),
    ]


def test_many_schedules_are_all_planted_in_one_step(delayq: DelayQ) -> None:
    send_reminder.schedules.set_many({"name": str(user), "every": HOUR, "args": [user]} for user in range(700))
    delayq.run_due()
    assert len(delayq.enqueued) == 700
    assert len(delayq.advance(hours=1, run=True)) == 700


def test_drain_waits_for_no_schedule(delayq: DelayQ) -> None:
    send_reminder.schedules.set("a", every=HOUR, args=[7])
    send_reminder.schedules.set("b", cron="30 * * * *", tz="UTC", args=[8])
    delayq.run_due()
    send_reminder.after(minutes=45).enqueue(1)
    assert [run.args for run in delayq.drain()] == [[8], [1]]
    assert delayq.drain() == []
    assert delayq.now - NINE < HOUR


def test_drain_waits_for_a_retry_of_a_schedule(delayq: DelayQ) -> None:
    charge.schedules.set("a", every=HOUR, args=[5], kwargs={"fails": 1}, pause_after=9)
    delayq.advance(hours=1)
    assert [run.attempt for run in delayq.drain(errors="retry")] == [1, 2]


def test_an_exception_is_raised_in_the_test(delayq: DelayQ) -> None:
    charge.schedules.set("a", every=HOUR, args=[5])
    with pytest.raises(ValueError, match="no money: 5") as caught:
        delayq.advance(hours=2, run=True)
    assert "This ended a job" in caught.value.__notes__[0]


def test_a_schedule_that_runs_too_often_is_named(delayq: DelayQ) -> None:
    send_reminder.schedules.set("a", every=1, args=[7])
    with pytest.raises(
        DelayQError, match="More than 20 jobs ran. Does a task enqueue itself, or a schedule run often?"
    ):
        delayq.advance(hours=1, run=True, limit=20)


def test_eager_tests_run_what_run_now_enqueues(delayq: DelayQ) -> None:
    send_reminder.schedules.set("a", every=HOUR, args=[7])
    found = send_reminder.schedules.get("a")
    assert found
    with delayq.eager():
        found.run_now()
        assert calls == [(7, "letter")]
        delayq.advance(hours=1)
    assert calls == [(7, "letter")] * 2


def test_dead_jobs_of_a_schedule_are_among_the_dead(delayq: DelayQ) -> None:
    give_up.schedules.set("a", every=HOUR)
    delayq.advance(hours=2, run=True, errors="retry")
    assert [job.task for job in delayq.dead] == [give_up.name] * 2


@pytest.fixture
def report(registered: Any) -> Any:
    """A task that declares a schedule, beside one that declares none."""
    registered({send_reminder.name: send_reminder})
    return delayed_task(name="shop.report", cron="0 12 * * *", tz="Europe/Berlin")(give_up.func)


@pytest.mark.parametrize("which", ["task", "name", "all"])
def test_declared_schedules_are_stored_on_request(delayq: DelayQ, report: Any, which: str) -> None:
    assert report.schedules.get("default") is None
    assert delayq.advance(days=2, run=True) == []
    tasks = {"task": [report], "name": ["shop.report"], "all": []}[which]
    delayq.declare_schedules(*tasks)
    ran = delayq.advance(days=2, run=True, errors="retry")
    assert [run.occurrence for run in ran] == [datetime(2100, 1, day, 11, tzinfo=UTC) for day in (6, 7)]
    [waiting] = delayq.enqueued
    delayq.declare_schedules(*tasks)
    assert [job.id for job in delayq.enqueued] == [waiting.id]


def test_schedules_of_several_tasks_are_declared_one_after_the_other(delayq: DelayQ, report: Any) -> None:
    count = delayed_task(name="shop.count", every=60)(give_up.func)
    delayq.declare_schedules(report)
    delayq.declare_schedules(count)
    delayq.run_due()
    assert {job.task for job in delayq.enqueued} == {"shop.report", "shop.count"}


def test_a_changed_declaration_replaces_its_waiting_job(delayq: DelayQ, report: Any) -> None:
    delayq.declare_schedules(report)
    delayq.run_due()
    changed = delayed_task(name="shop.report", every=60)(report.func)
    delayq.declare_schedules(changed)
    delayq.run_due()
    delayq.assert_enqueued(changed, due_in=60, count=1)
    assert len(delayq.enqueued) == 1


def test_what_declares_nothing_is_an_error(delayq: DelayQ, registered: Any, report: Any) -> None:
    with pytest.raises(DelayQError, match=r"tasks\.send_reminder declares no recurring schedule"):
        delayq.declare_schedules(report, send_reminder)
    registered({send_reminder.name: send_reminder})
    with pytest.raises(DelayQError, match="the code declares no recurring schedule"):
        delayq.declare_schedules()


def test_async_tests_advance_schedules(delayq: DelayQ) -> None:
    async def main() -> int:
        await send_reminder.schedules.aset("a", every=HOUR, args=[7])
        return len(await delayq.aadvance(hours=2, run=True))

    assert asyncio.run(main()) == 2


def test_schedules_do_not_outlive_their_test_first(delayq: DelayQ) -> None:
    assert list(send_reminder.schedules.iter()) == []
    send_reminder.schedules.set("a", every=HOUR, args=[7])


def test_schedules_do_not_outlive_their_test_second(delayq: DelayQ) -> None:
    assert list(send_reminder.schedules.iter()) == []
    send_reminder.schedules.set("a", every=HOUR, args=[7])
