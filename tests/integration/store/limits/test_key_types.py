"""A key of another type: a transition of a job with limits fails before it changes anything."""

from collections.abc import Callable

import pytest

from django_delayq.exceptions import ScriptFault
from django_delayq.job.job import LimitUse
from django_delayq.job.outcome import Action, Decision
from django_delayq.store.claims import Settlement
from django_delayq.store.promotion import Reclaim
from tests.shard_apis import HOUR, SECOND, ShardApis

TASK = "tests.sample_app.tasks.noop"
ONE = LimitUse("one")
Transition = Callable[[], object]


def release(apis: ShardApis) -> Transition:
    """Return the release of a job of a paused task."""
    apis.add()
    worker = apis.worker()
    (claim,) = worker.take(1).claims
    apis.operations.limits.pause_task(TASK, by="ann")
    decision = Decision(action=Action.RELEASE, parks=True)
    return lambda: worker.take(0, settle=[Settlement(claim=claim, decision=decision, attempts=claim.attempts)])


def reclaim(apis: ShardApis) -> Transition:
    """Return the reclaim of a job whose lease has expired."""
    apis.add(limits=[ONE])
    apis.worker().take(1)
    found = apis.promotion.read_expired_leases(apis.expired_leases())
    back = [Reclaim(lease=item.lease, attempts=item.attempts, queue=item.queue) for item in found]
    return lambda: apis.promotion.reclaim(back)


def claim_one(apis: ShardApis) -> Transition:
    """Return the claim of a job that waits."""
    made, worker = apis.add(limits=[ONE], delay=HOUR), apis.worker()
    return lambda: worker.api.claim_one(made, worker_name="a shell")


def give_back(apis: ShardApis) -> Transition:
    """Return the end of a block of code that has a slot."""
    apis.operations.limits.take_slot(ONE, lease=bytes(30), length_us=SECOND)
    return lambda: apis.operations.limits.give_back_slot(ONE, lease=bytes(30))


def let_in(apis: ShardApis) -> Transition:
    """Return the step that lets the next job in."""
    for _ in range(2):
        apis.add(limits=[ONE])
    worker = apis.worker()
    (claim,) = worker.take(1).claims
    worker.settle(claim, Action.ACKNOWLEDGE)
    promoted = apis.promote()
    return lambda: apis.promotion.let_in(promoted.limits_to_let_in, promoted.parked_in)


def claim_and_park(apis: ShardApis) -> Transition:
    """Return a claim of which one job has a key, and one must wait."""
    for _ in range(2):
        apis.add(limits=[ONE])
    apis.add(key="a", until_start=True)
    worker = apis.worker()
    return lambda: worker.take(5)


def claim_during_back_off(apis: ShardApis) -> Transition:
    """Return a claim of a job whose limit is not declared any more, while somebody backs off."""
    made = apis.draft(limits=[LimitUse("odd")])
    apis.operations.limits.back_off(LimitUse("odd"), HOUR)
    apis.client.delete(apis.keys("limit_rules"))
    apis.enqueue(made)
    worker = apis.worker()
    return lambda: worker.take(5)


@pytest.mark.parametrize(
    ("prepare", "noun"),
    [
        (release, "parked:default"),
        (reclaim, "limit_rules"),
        (reclaim, "paused_tasks"),
        (claim_one, "attempts"),
        (claim_one, "limit_rules"),
        (give_back, "limit_rules"),
        (give_back, "limit_times"),
        (let_in, "limit_rules"),
        (let_in, "limit_times"),
        (claim_and_park, "unique_keys"),
        (claim_during_back_off, "next_let_in"),
        (claim_during_back_off, "waiting_for"),
    ],
)
def test_nothing_is_changed(apis: ShardApis, prepare: Callable[[ShardApis], Transition], noun: str) -> None:
    transition = prepare(apis)
    key = f"{apis.config.prefix}:{{{apis.shard.index}}}:{noun}"
    apis.client.set(key, "x")
    before = apis.dump()
    with pytest.raises(ScriptFault):
        transition()
    assert apis.dump() == before
