"""Move: a waiting job changes its queue and nothing else."""

import pytest

from django_delayq.job.body.codec import with_queue
from django_delayq.store.client.script import Script
from tests.shard_apis import HOUR, SECOND, START, ShardApis


@pytest.mark.parametrize("span", [1, SECOND, 3_650 * 24 * HOUR])
def test_scheduled_job_keeps_its_due_time_to_the_microsecond(apis: ShardApis, span: int) -> None:
    raw_id = apis.add("argument", queue="a", due=START + span)
    apis.clock.advance(-SECOND)
    assert apis.operations.move(raw_id, "b")
    assert (apis.scheduled("a"), apis.scheduled("b")) == ({}, {raw_id: START + span})
    assert apis.where(raw_id) == ["scheduled:b"]


def test_ready_job_keeps_its_rank(apis: ShardApis) -> None:
    raw_id = apis.add(queue="a", priority=9)
    rank = apis.ready("a")[raw_id]
    apis.clock.advance(HOUR)
    ahead = apis.add(queue="b", priority=9)
    assert apis.operations.move(raw_id, "b")
    assert list(apis.ready("b")) == [raw_id, ahead]
    assert apis.ready("b")[raw_id] == rank


def test_the_body_names_the_new_queue_and_is_otherwise_the_same(apis: ShardApis) -> None:
    raw_id = apis.add("argument", queue="a", key="k", priority=3)
    before = apis.inspection.find(raw_id).job
    apis.operations.move(raw_id, "b")
    (claim,) = apis.worker().take(1, "b").claims
    assert before is not None
    assert claim.job is not None
    assert (claim.job.queue, claim.job.args, claim.job.key) == ("b", ["argument"], "k")
    assert claim.job.member == before.member


def test_moved_ready_job_notifies_its_new_queue(apis: ShardApis) -> None:
    apis.add(queue="b")
    raw_id = apis.add(queue="a")
    notify_keys = [apis.keys.notify("a"), apis.keys.notify("b"), apis.keys("notify")]
    apis.notifications(*notify_keys)
    apis.operations.move(raw_id, "b")
    assert apis.notifications(*notify_keys) == [0, 1, 1]


def test_move_to_a_new_queue_lists_it(apis: ShardApis) -> None:
    raw_id = apis.add(queue="a", delay=HOUR)
    apis.operations.move(raw_id, "new")
    assert apis.shard.read_queues() == ["new"]
    apis.clock.advance(HOUR)
    apis.promote()
    assert apis.notifications(apis.keys("notify")) == [1]
    assert apis.where(raw_id) == ["ready:new"]


def test_move_to_its_own_queue_changes_nothing(apis: ShardApis) -> None:
    raw_id = apis.add(delay=HOUR)
    assert apis.operations.move(raw_id, "default")
    assert apis.scheduled() == {raw_id: START + HOUR}


@pytest.mark.parametrize("queue", ["other", "default"])
def test_running_job_does_not_move(apis: ShardApis, queue: str) -> None:
    raw_id = apis.add()
    apis.worker().take()
    assert not apis.operations.move(raw_id, queue)
    assert apis.where(raw_id) == ["leases"]
    found = apis.inspection.find(raw_id).job
    assert found is not None
    assert found.queue == "default"


def test_dead_and_unknown_jobs_do_not_move(apis: ShardApis) -> None:
    dead = apis.add_dead()
    assert not apis.operations.move(dead, "other")
    assert not apis.operations.move(b"\x01" * 12, "other")
    assert apis.where(dead) == ["dead_letters"]


def test_body_that_changed_since_it_was_read_is_not_overwritten(apis: ShardApis) -> None:
    raw_id = apis.add(queue="a", delay=HOUR)
    body = apis.client.hget(apis.keys("jobs"), raw_id)
    member = apis.client.zrange(apis.keys.scheduled("a"), 0, 0)[0]
    changed = body[:-1] + b" ]"
    apis.client.hset(apis.keys("jobs"), raw_id, changed)
    to = {"to_scheduled": apis.keys.scheduled("b"), "to_ready": apis.keys.ready("b")}
    to |= {"to_recovered": apis.keys.recovered("b"), "to_notify": apis.keys.notify("b")}
    args = [1, member, body, with_queue(body, "b")]
    assert apis.shard.run(Script("move"), args, **to, more_keys=apis.keys.places("a")) == [b"ELSEWHERE"]
    assert apis.where(raw_id) == ["scheduled:a"]
    assert apis.client.hget(apis.keys("jobs"), raw_id) == changed


def test_move_there_and_back_is_as_before(apis: ShardApis) -> None:
    raw_id = apis.add("argument", queue="a", delay=HOUR)
    body = apis.client.hget(apis.keys("jobs"), raw_id)
    assert apis.operations.move(raw_id, "a much longer name")
    assert apis.operations.move(raw_id, "a")
    assert apis.scheduled("a") == {raw_id: START + HOUR}
    assert apis.client.hget(apis.keys("jobs"), raw_id) == body


def test_full_memory_does_not_lose_the_job(own_apis: ShardApis) -> None:
    raw_id = own_apis.add(delay=HOUR)
    own_apis.fill_memory()
    assert own_apis.operations.move(raw_id, "other")
    assert own_apis.where(raw_id) == ["scheduled:other"]


def test_flushed_scripts_are_loaded_again(apis: ShardApis) -> None:
    raw_id = apis.add()
    apis.operations.move(raw_id, "a")
    apis.client.script_flush()
    assert apis.operations.move(raw_id, "b")
