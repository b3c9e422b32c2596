"""Jobs of a paused task that have limits: they wait, and take nothing from jobs of other tasks."""

import pytest

from django_delayq.job.job import LimitUse
from django_delayq.job.outcome import Action
from tests.shard_apis import ShardApis, ids

TASK = "tests.sample_app.tasks.noop"
ONE, ODD = LimitUse("one"), LimitUse("odd")


@pytest.mark.parametrize("limit", [ONE, ODD])
def test_they_take_no_slot(apis: ShardApis, limit: LimitUse) -> None:
    apis.operations.limits.pause_task(TASK, by="ann")
    paused = apis.add(limits=[limit])
    other = apis.add(limits=[limit], drops=True, task="another")
    (claim,) = apis.worker().take(5).claims
    assert (claim.raw_id, claim.is_dropped) == (other, False)
    assert list(apis.parked()) == [paused]


def test_they_are_not_dropped(apis: ShardApis) -> None:
    worker = apis.worker()
    apis.add(limits=[ONE], task="another")
    (running,) = worker.take(1).claims
    apis.operations.limits.pause_task(TASK, by="ann")
    paused = apis.add(limits=[ONE], drops=True)
    assert not worker.take(5).claims
    assert list(apis.parked()) == [paused]
    worker.settle(running, Action.ACKNOWLEDGE)
    assert not worker.take(5).claims
    apis.operations.limits.resume_task(TASK)
    assert apis.let_in() == 1
    assert ids(worker.take(5).claims) == [paused]


def test_a_body_that_is_damaged_is_of_no_paused_task(apis: ShardApis) -> None:
    apis.operations.limits.pause_task(TASK, by="ann")
    made = [apis.add(limits=[LimitUse("rate")]) for _ in range(3)]
    bodies = apis.client.hmget(apis.keys("jobs"), made)
    for raw_id, body in zip(made, ("", bodies[1][:4], bodies[2][:20]), strict=True):
        apis.client.hset(apis.keys("jobs"), raw_id, body)
    assert ids(apis.worker().take(5).claims) == made
