"""A job that was claimed only to be dropped never begins, whatever becomes of that claim."""

from dataclasses import replace

from django_delayq.conf.limit_rules import LimitRule
from django_delayq.job.job import LimitUse
from django_delayq.job.outcome import Action
from django_delayq.store.maintenance.consistency_check import ConsistencyCheck
from django_delayq.store.promotion import Reclaim
from tests.integration.store.schedules.conftest import NOON, ScheduledApis
from tests.shard_apis import HOUR, one_more

TWO = LimitUse("two")


def lapse(scheduled: ScheduledApis, lease: bytes) -> None:
    """Let a worker die that holds this lease; the dispatcher counts its attempt."""
    apis = scheduled.apis
    apis.client.zadd(apis.keys("leases"), {lease: apis.clock.now_us})
    (item,) = apis.promotion.read_expired_leases([lease])
    assert apis.promotion.reclaim([Reclaim(lease=lease, attempts=one_more(item.attempts), queue=item.queue)]) == [True]


def test_another_one_runs(scheduled: ScheduledApis) -> None:
    scheduled.add()
    scheduled.plant()
    scheduled.advance_to(NOON + HOUR)
    (running,) = scheduled.take()
    scheduled.settle(running, Action.RETRY, delay=2 * HOUR)
    scheduled.advance_to(NOON + HOUR * 3 // 2)
    scheduled.advance_to(NOON + 2 * HOUR)
    for _ in range(2):
        (claim,) = scheduled.apis.worker().take(5).claims
        assert claim.is_dropped
        lapse(scheduled, claim.lease)


def test_its_schedule_was_paused(scheduled: ScheduledApis) -> None:
    definition = scheduled.add()
    scheduled.plant()
    scheduled.advance_to(NOON + HOUR)
    scheduled.schedules.pause_schedule(definition.id)
    for _ in range(2):
        (claim,) = scheduled.apis.worker().take(5).claims
        assert claim.is_dropped
        lapse(scheduled, claim.lease)


def test_a_limit_let_it_in_before(scheduled: ScheduledApis) -> None:
    apis = scheduled.apis
    apis.operations.limits.set_limits([(TWO.name, LimitRule(max_running=2))])
    for _ in range(2):
        apis.add(limits=[TWO])
    running = scheduled.take()
    definition = scheduled.define()
    definition = replace(definition, job=replace(definition.job, limits=(TWO,)))
    scheduled.set(definition)
    scheduled.plant()
    scheduled.advance_to(NOON + HOUR)
    assert not scheduled.take()
    scheduled.settle(running[0])
    assert apis.let_in() == 1
    scheduled.schedules.pause_schedule(definition.id)
    assert not scheduled.take()
    assert not list(ConsistencyCheck(apis.shard).walk())
