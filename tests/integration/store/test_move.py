"""Move: a job that waits changes its queue and nothing else."""

import pytest

from django_delayq.job.codec import with_queue
from django_delayq.store.client.script import Script
from tests.shard_apis import HOUR, SECOND, START, Doors


@pytest.mark.parametrize("span", [1, SECOND, 3_650 * 24 * HOUR])
def test_scheduled_job_keeps_its_due_time_to_the_microsecond(doors: Doors, span: int) -> None:
    raw_id = doors.add("argument", queue="a", due=START + span)
    doors.clock.advance(-SECOND)
    assert doors.operations.move(raw_id, "b")
    assert (doors.schedule("a"), doors.schedule("b")) == ({}, {raw_id: START + span})
    assert doors.where(raw_id) == ["scheduled:b"]


def test_ready_job_keeps_its_rank(doors: Doors) -> None:
    raw_id = doors.add(queue="a", priority=9)
    rank = doors.ready("a")[raw_id]
    doors.clock.advance(HOUR)
    ahead = doors.add(queue="b", priority=9)
    assert doors.operations.move(raw_id, "b")
    assert list(doors.ready("b")) == [raw_id, ahead]
    assert doors.ready("b")[raw_id] == rank


def test_body_tells_the_new_queue_and_is_else_the_same(doors: Doors) -> None:
    raw_id = doors.add("argument", queue="a", key="k", priority=3)
    before = doors.inspection.find(raw_id).job
    doors.operations.move(raw_id, "b")
    (claim,) = doors.worker().take(1, "b").claims
    assert before is not None
    assert claim.job is not None
    assert (claim.job.queue, claim.job.args, claim.job.key) == ("b", ["argument"], "k")
    assert claim.job.member == before.member


def test_moved_ready_job_rings_its_new_queue(doors: Doors) -> None:
    doors.add(queue="b")
    raw_id = doors.add(queue="a")
    bells = [doors.keys.notify("a"), doors.keys.notify("b"), doors.keys("notify")]
    doors.rings(*bells)
    doors.operations.move(raw_id, "b")
    assert doors.rings(*bells) == [0, 1, 1]


def test_move_to_a_new_queue_makes_it_known(doors: Doors) -> None:
    raw_id = doors.add(queue="a", delay=HOUR)
    doors.operations.move(raw_id, "new")
    assert doors.shard.read_queues() == ["new"]
    doors.clock.advance(HOUR)
    doors.promote()
    assert doors.rings(doors.keys("notify")) == [1]
    assert doors.where(raw_id) == ["ready:new"]


def test_move_to_its_own_queue_changes_nothing(doors: Doors) -> None:
    raw_id = doors.add(delay=HOUR)
    assert doors.operations.move(raw_id, "default")
    assert doors.schedule() == {raw_id: START + HOUR}


@pytest.mark.parametrize("queue", ["other", "default"])
def test_running_job_does_not_move(doors: Doors, queue: str) -> None:
    raw_id = doors.add()
    doors.worker().take()
    assert not doors.operations.move(raw_id, queue)
    assert doors.where(raw_id) == ["leases"]
    found = doors.inspection.find(raw_id).job
    assert found is not None
    assert found.queue == "default"


def test_dead_and_unknown_jobs_do_not_move(doors: Doors) -> None:
    dead = doors.add_dead()
    assert not doors.operations.move(dead, "other")
    assert not doors.operations.move(b"\x01" * 12, "other")
    assert doors.where(dead) == ["dead_letters"]


def test_body_that_changed_since_it_was_read_is_not_overwritten(doors: Doors) -> None:
    raw_id = doors.add(queue="a", delay=HOUR)
    body = doors.client.hget(doors.keys("jobs"), raw_id)
    member = doors.client.zrange(doors.keys.scheduled("a"), 0, 0)[0]
    changed = body[:-1] + b" ]"
    doors.client.hset(doors.keys("jobs"), raw_id, changed)
    keys = {"scheduled": doors.keys.scheduled("a"), "ready": doors.keys.ready("a")}
    keys |= {"to_scheduled": doors.keys.scheduled("b"), "to_ready": doors.keys.ready("b")}
    args = [member, body, with_queue(body, "b"), b"b"]
    assert doors.shard.run(Script("move"), args, **keys, to_notify=doors.keys.notify("b")) == b"ELSEWHERE"
    assert doors.where(raw_id) == ["scheduled:a"]
    assert doors.client.hget(doors.keys("jobs"), raw_id) == changed


def test_move_there_and_back_is_as_before(doors: Doors) -> None:
    raw_id = doors.add("argument", queue="a", delay=HOUR)
    body = doors.client.hget(doors.keys("jobs"), raw_id)
    assert doors.operations.move(raw_id, "a much longer name")
    assert doors.operations.move(raw_id, "a")
    assert doors.schedule("a") == {raw_id: START + HOUR}
    assert doors.client.hget(doors.keys("jobs"), raw_id) == body


def test_full_memory_does_not_lose_the_job(own_doors: Doors) -> None:
    raw_id = own_doors.add(delay=HOUR)
    own_doors.fill_memory()
    assert own_doors.operations.move(raw_id, "other")
    assert own_doors.where(raw_id) == ["scheduled:other"]


def test_flushed_scripts_are_loaded_again(doors: Doors) -> None:
    raw_id = doors.add()
    doors.operations.move(raw_id, "a")
    doors.client.script_flush()
    assert doors.operations.move(raw_id, "b")
