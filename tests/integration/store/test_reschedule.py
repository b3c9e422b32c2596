"""Reschedule: a job that waits gets another time, earlier, later, or now."""

from collections.abc import Callable
from typing import Any

import pytest

from django_delayq.job.outcome import Action
from django_delayq.store.client.connection_cache import ConnectionCache
from tests.shard_apis import DAY, HOUR, SECOND, START, Doors

SPANS = pytest.mark.parametrize("span", [1, SECOND, DAY, 365 * DAY, 3_650 * DAY])


@SPANS
@pytest.mark.parametrize("before", [None, HOUR])
def test_delay_counts_from_now_to_the_microsecond(doors: Doors, span: int, before: int | None) -> None:
    raw_id = doors.add(delay=before)
    doors.clock.advance(7)
    assert doors.operations.reschedule(raw_id, delay_us=span) == START + 7 + span
    assert doors.schedule() == {raw_id: START + 7 + span}
    assert doors.where(raw_id) == ["scheduled:default"]


@SPANS
def test_moment_is_kept_to_the_microsecond(doors: Doors, span: int) -> None:
    raw_id = doors.add(delay=HOUR)
    assert doors.operations.reschedule(raw_id, due_us=START + span) == START + span
    assert doors.schedule() == {raw_id: START + span}


@pytest.mark.parametrize("due", [START, START - 1, -62_135_596_800_000_000])
def test_moment_that_is_over_makes_the_job_ready_now(doors: Doors, due: int) -> None:
    raw_id = doors.add(delay=HOUR)
    doors.rings(doors.keys.notify("default"))
    assert doors.operations.reschedule(raw_id, due_us=due) == START
    assert doors.where(raw_id) == ["ready:default"]
    assert doors.rings(doors.keys.notify("default")) == [1]


def test_delay_of_nothing_makes_the_job_ready_now(doors: Doors) -> None:
    raw_id = doors.add(delay=HOUR)
    assert doors.operations.reschedule(raw_id, delay_us=0) == START
    assert doors.where(raw_id) == ["ready:default"]


def test_ready_job_can_be_put_off(doors: Doors) -> None:
    raw_id = doors.add(priority=7)
    doors.operations.reschedule(raw_id, delay_us=SECOND)
    assert doors.worker().take().claims == []
    doors.clock.advance(SECOND)
    doors.promote()
    (claim,) = doors.worker().take().claims
    assert (claim.raw_id, claim.job and claim.job.priority) == (raw_id, 7)


def test_ready_job_rescheduled_to_now_goes_behind_those_that_waited(doors: Doors) -> None:
    first = doors.add()
    doors.clock.advance(SECOND)
    second = doors.add()
    doors.clock.advance(SECOND)
    doors.operations.reschedule(first, delay_us=0)
    assert list(doors.ready()) == [second, first]


def test_earlier_time_rings_the_alarm_and_a_later_one_does_not(doors: Doors) -> None:
    raw_id = doors.add(delay=2 * SECOND)
    doors.promote()
    rung = []
    for delay in (SECOND, 3 * SECOND):
        doors.rings(doors.keys("notify_dispatcher"))
        doors.operations.reschedule(raw_id, delay_us=delay)
        rung += doors.rings(doors.keys("notify_dispatcher"))
    assert rung == [1, 0]


def test_running_job_is_too_late(doors: Doors) -> None:
    raw_id = doors.add()
    doors.worker().take()
    assert doors.operations.reschedule(raw_id, delay_us=HOUR) is None
    assert doors.where(raw_id) == ["leases"]


def test_dead_and_ended_jobs_are_too_late(doors: Doors) -> None:
    dead, ended = doors.add_dead(), doors.add()
    worker = doors.worker()
    worker.settle(worker.take().claims[0], Action.ACKNOWLEDGE)
    assert doors.operations.reschedule(dead, delay_us=HOUR) is None
    assert doors.operations.reschedule(ended, delay_us=HOUR) is None
    assert (doors.where(dead), doors.where(ended)) == (["dead_letters"], [])


def test_moved_job_is_found(doors: Doors) -> None:
    raw_id = doors.add(delay=HOUR)
    doors.operations.move(raw_id, "other")
    assert doors.operations.reschedule(raw_id, delay_us=SECOND) == START + SECOND
    assert doors.schedule("other") == {raw_id: START + SECOND}


def test_key_stays_held(doors: Doors) -> None:
    raw_id = doors.add(key="k", delay=HOUR)
    doors.operations.reschedule(raw_id, delay_us=SECOND)
    assert doors.enqueue(doors.draft(key="k")).held == {0: raw_id}


def test_full_memory_does_not_lose_the_job(own_doors: Doors) -> None:
    raw_id = own_doors.add(delay=HOUR)
    own_doors.fill_memory()
    assert own_doors.operations.reschedule(raw_id, delay_us=SECOND) == START + SECOND
    assert own_doors.operations.reschedule(raw_id, delay_us=0) == START
    assert own_doors.where(raw_id) == ["ready:default"]


def test_flushed_scripts_are_loaded_again(doors: Doors) -> None:
    raw_id = doors.add(delay=HOUR)
    doors.operations.reschedule(raw_id, delay_us=SECOND)
    doors.client.script_flush()
    assert doors.operations.reschedule(raw_id, delay_us=HOUR) == START + HOUR


@pytest.mark.parametrize("key", [None, "k"])
def test_an_immediate_job_that_is_put_off_has_the_head_start_of_due_jobs(doors: Doors, key: str | None) -> None:
    raw_id = doors.add("put off", key=key, priority=3)
    backlog = doors.add(priority=3)
    assert doors.operations.reschedule(raw_id, delay_us=SECOND)
    doors.clock.advance(SECOND)
    doors.promote()
    assert list(doors.ready()) == [raw_id, backlog]
    (claim,) = doors.worker().take().claims
    assert claim.job and (claim.raw_id, claim.job.args, claim.job.priority) == (raw_id, ["put off"], 3)
    assert claim.due_us == (START + SECOND) // 1_000 * 1_000


def test_a_keyed_job_that_was_put_off_is_found_holds_its_key_and_can_be_cancelled(doors: Doors) -> None:
    raw_id = doors.add(key="k")
    assert doors.operations.reschedule(raw_id, delay_us=HOUR)
    assert doors.inspection.find(raw_id).state == "scheduled"
    assert doors.enqueue(doors.draft(key="k")).held == {0: raw_id}
    assert list(doors.store.consistency_check(doors.shard).walk()) == []
    assert doors.operations.reschedule(raw_id, delay_us=DAY) == START + DAY
    assert doors.operations.move(raw_id, "mail")
    assert doors.operations.cancel(raw_id)
    assert doors.traces(raw_id) == []


def test_a_signed_job_that_was_put_off_is_signed_anew(make_doors: Callable[..., Doors]) -> None:
    doors = make_doors(SIGN=True)
    draft = doors.draft("signed")
    doors.enqueue(draft)
    raw_id = draft.job.raw_id
    assert doors.operations.reschedule(raw_id, delay_us=SECOND)
    doors.clock.advance(SECOND)
    doors.promote()
    (claim,) = doors.worker().take().claims
    assert claim.fault is None and claim.job and claim.job.args == ["signed"]


def test_a_job_with_a_wrong_signature_can_still_be_put_off(make_doors: Callable[..., Doors]) -> None:
    raw_id = make_doors().add()
    doors = make_doors(SIGN=True)
    assert doors.operations.reschedule(raw_id, delay_us=SECOND) == START + SECOND


@pytest.mark.parametrize("how", ["moved", "requeued with other arguments"])
def test_a_body_that_changed_since_it_was_read_is_read_again(
    how: str, doors: Doors, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw_id = doors.add("old")
    other, read, changes = doors.draft("new", raw_id=raw_id), ConnectionCache.ask, [how]

    def changed_meanwhile(line: ConnectionCache, *parts: Any) -> Any:
        found = read(line, *parts)
        if parts[0] == "HGET" and changes:
            if changes.pop() == "moved":
                assert doors.operations.move(raw_id, "mail")
            else:
                doors.client.hset(doors.keys("jobs"), raw_id, other.body)
        return found

    monkeypatch.setattr(ConnectionCache, "ask", changed_meanwhile)
    assert doors.operations.reschedule(raw_id, delay_us=SECOND) == START + SECOND
    queue, argument = ("mail", "old") if how == "moved" else ("default", "new")
    assert doors.where(raw_id) == [f"scheduled:{queue}"]
    assert list(doors.store.consistency_check(doors.shard).walk()) == []
    doors.clock.advance(SECOND)
    doors.promote()
    (claim,) = doors.worker().take(1, queue).claims
    assert claim.job and claim.job.args == [argument]
