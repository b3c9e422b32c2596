"""`task.schedules`: schedules are set, read, changed and deleted by their names."""

import asyncio
import pickle
from datetime import timedelta
from typing import Any

import pytest

from django_delayq import delayed_task, get_job
from django_delayq.exceptions import UnknownSchedule
from django_delayq.job.job import State
from django_delayq.testing import DelayQ
from tests.sample_app.tasks import noop
from tests.shard_apis import NINE
from tests.testing_helpers.tasks import charge, close_sale

HOUR = timedelta(hours=1)


def test_a_schedule_runs_its_task(delayq: DelayQ) -> None:
    noop.schedules.set("digest:42", every=HOUR, args=[42], kwargs={"name": "a"})
    ran = delayq.advance(hours=3, run=True)
    assert [(run.args, run.kwargs) for run in ran] == [([42], {"name": "a"})] * 3
    assert [run.occurrence for run in ran] == [NINE + number * HOUR for number in (1, 2, 3)]


def test_what_a_schedule_says(delayq: DelayQ) -> None:
    assert noop.schedules.get("morning") is None
    noop.schedules.set("morning", cron="0 9 * * mon-fri", tz="Europe/Berlin")
    found = noop.schedules.get("morning")
    assert found
    assert (found.name, found.task, found.is_paused, found.last, found.runs) == ("morning", noop.name, False, None, [])
    assert (found.fault, found.is_declared, found.failures, found.last_ended_at) == (None, False, 0, None)
    assert [each.isoformat() for each in found.next(2)] == ["2100-01-05T09:00:00+01:00", "2100-01-06T09:00:00+01:00"]
    assert found.job_id is None
    assert repr(found) == "<ScheduleHandle 'morning' of tests.sample_app.tasks.noop>"
    delayq.advance(days=1, run=True)
    found = found.refresh()
    assert found
    assert found.last
    assert found.last.outcome == "done"
    assert found.last_ended_at and found.last_ended_at.date().isoformat() == "2100-01-05"
    assert found.job_id
    waiting = get_job(found.job_id)
    assert waiting and waiting.state is State.SCHEDULED
    assert found.delete()
    assert found.refresh() is None
    assert not found.delete()
    with pytest.raises(UnknownSchedule, match=r"the schedule 'morning' of tests\.sample_app\.tasks\.noop was deleted"):
        found.pause()
    with pytest.raises(UnknownSchedule, match="has no schedule 'morning'"):
        noop.schedules.resume("morning")


def test_handles_of_one_schedule_are_equal(delayq: DelayQ) -> None:
    noop.schedules.set_many({"name": name, "every": HOUR, "args": [[1]]} for name in "ab")
    first, other = noop.schedules.get("a"), noop.schedules.get("b")
    noop.schedules.set("a", every=2 * HOUR)
    assert first == noop.schedules.get("a") != other
    assert len({first, other, noop.schedules.get("a")}) == 2
    assert first != "a"
    again = pickle.loads(pickle.dumps(first))
    assert again == first and again.name == "a"


def test_next_returns_occurrences_before_jitter_and_up_to_the_end(delayq: DelayQ) -> None:
    noop.schedules.set("a", every=HOUR, jitter=timedelta(minutes=59), end=NINE + 3 * HOUR)
    found = noop.schedules.get("a")
    assert found and found.next(5) == [NINE + HOUR, NINE + 2 * HOUR, NINE + 3 * HOUR]
    assert found.next() == [NINE + HOUR]
    delayq.advance(hours=3, minutes=30)
    assert found.next() == []


def test_an_ended_schedule_stays_and_runs_no_more(delayq: DelayQ) -> None:
    noop.schedules.set("a", every=HOUR, end=NINE + 2 * HOUR)
    assert len(delayq.advance(days=1, run=True)) == 2
    found = noop.schedules.get("a")
    assert found and found.job_id is None and found.last and found.last.outcome == "done"


def test_failures_pause_a_schedule_and_resume_forgets_them(delayq: DelayQ) -> None:
    charge.schedules.set("a", every=HOUR, args=[5], pause_after=2)
    delayq.advance(hours=5, run=True, errors="retry")
    found = charge.schedules.get("a")
    assert found and (found.is_paused, found.failures, [run.outcome for run in found.runs]) == (True, 2, ["failed"] * 2)
    assert repr(found).endswith("charge, paused>")
    assert found.resume() is True
    found = found.refresh()
    assert found and (found.is_paused, found.failures) == (False, 0)
    assert found.resume() is False


def test_an_equal_schedule_keeps_its_waiting_job(delayq: DelayQ) -> None:
    options: dict[str, Any] = {"cron": "0 9 * * *", "tz": "UTC", "args": [1], "jitter": 5}
    noop.schedules.set("a", **options)
    delayq.run_due()
    [waiting] = delayq.enqueued
    noop.schedules.set("a", **options)
    delayq.run_due()
    assert [job.id for job in delayq.enqueued] == [waiting.id]


@pytest.mark.parametrize(
    "change", [{"args": [2]}, {"cron": "0 10 * * *"}, {"jitter": 6}, {"overlap": "allow"}, {"pause_after": 3}]
)
def test_a_changed_schedule_replaces_its_waiting_job(delayq: DelayQ, change: dict[str, Any]) -> None:
    options: dict[str, Any] = {"cron": "0 9 * * *", "tz": "UTC", "args": [1], "jitter": 5}
    noop.schedules.set("a", **options)
    delayq.run_due()
    [waiting] = delayq.enqueued
    noop.schedules.set("a", **options | change)
    assert delayq.enqueued == []
    delayq.run_due()
    [job] = delayq.enqueued
    assert job.id != waiting.id and job.args == change.get("args", [1])


def test_the_option_of_a_task_that_changed_is_a_change(delayq: DelayQ) -> None:
    noop.schedules.set("a", every=HOUR)
    delayq.run_due()
    noop.using(priority=5).schedules.set("a", every=HOUR)
    delayq.run_due()
    assert [job.priority for job in delayq.enqueued] == [5]


def test_names_belong_to_their_task(delayq: DelayQ) -> None:
    noop.schedules.set("a", every=HOUR)
    close_sale.schedules.set("a", every=HOUR, args=[1])
    assert noop.schedules.delete("a") == 1
    assert noop.schedules.get("a") is None and close_sale.schedules.get("a") is not None


def test_iter_finds_the_schedules_of_its_task_by_the_beginning_of_their_names(delayq: DelayQ) -> None:
    names = {f"digest:{number}" for number in range(600)}
    noop.schedules.set_many({"name": name, "every": HOUR} for name in names | {"morning"})
    close_sale.schedules.set("digest:other", every=HOUR, args=[1])
    assert {each.name for each in noop.schedules.iter("digest:")} == names
    assert {each.name for each in noop.schedules.iter()} == names | {"morning"}
    assert list(noop.schedules.iter("none")) == []


def test_several_are_deleted_at_once(delayq: DelayQ) -> None:
    noop.schedules.set_many({"name": str(number), "every": HOUR} for number in range(600))
    delayq.run_due()
    assert noop.schedules.delete(*map(str, range(10, 700))) == 590
    assert noop.schedules.delete() == 0
    assert {each.name for each in noop.schedules.iter()} == set(map(str, range(10)))


def test_the_schedules_of_a_renamed_task_are_found_and_replaced(delayq: DelayQ, registered: Any) -> None:
    registered()
    before = delayed_task(name="shop.old")(noop.func)
    before.schedules.set_many([{"name": name, "every": HOUR} for name in "abc"])
    after = delayed_task(name="shop.new", aliases=["shop.old"])(noop.func)
    found = after.schedules.get("a")
    assert found and found.task == "shop.old"
    assert {each.name for each in after.schedules.iter()} == {"a", "b", "c"}
    after.schedules.set("a", every=HOUR)
    found = after.schedules.get("a")
    assert found and found.task == "shop.new"
    assert after.schedules.delete("b") == 1
    assert after.schedules.pause("c") is True
    assert [run.task for run in delayq.advance(hours=1, run=True)] == ["shop.new"]


def test_async_code_sets_reads_and_deletes_schedules(delayq: DelayQ) -> None:
    async def main() -> tuple[Any, ...]:
        await noop.schedules.aset("a", every=HOUR)
        number = await noop.schedules.aset_many([{"name": "b", "every": HOUR}, {"name": "c", "every": HOUR}])
        found = await noop.schedules.aget("b")
        return number, found and found.name, await noop.schedules.aget("d"), await noop.schedules.adelete("a", "d")

    assert asyncio.run(main()) == (2, "b", None, 1)
    assert {each.name for each in noop.schedules.iter()} == {"b", "c"}
