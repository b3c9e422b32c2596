"""A key of another type: a transition of a schedule, or of its jobs, fails before it changes anything."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from django_delayq.exceptions import ScriptFault
from django_delayq.job.job import Claim
from django_delayq.job.outcome import Action
from django_delayq.store.promotion import Reclaim
from tests.integration.store.schedules.conftest import NOON, ScheduledApis
from tests.shard_apis import HOUR, settlement

Transition = Callable[[], object]


def run_first(scheduled: ScheduledApis, **options: object) -> Claim:
    """Let the first job of a schedule begin, and the second one become ready."""
    scheduled.add(**options)
    scheduled.plant()
    scheduled.advance_to(NOON + HOUR)
    (claim,) = scheduled.take()
    scheduled.advance_to(NOON + HOUR * 3 // 2)
    scheduled.advance_to(NOON + 2 * HOUR)
    return claim


def set_schedules(scheduled: ScheduledApis) -> Transition:
    """Return a change of one schedule that is planted, before a new one."""
    scheduled.add()
    scheduled.plant()
    changed, new = scheduled.define(every=60), scheduled.define("new")
    return lambda: scheduled.schedules.set_schedules([changed, new])


def pause_schedule(scheduled: ScheduledApis) -> Transition:
    """Return the pause of a schedule that is planted."""
    definition = scheduled.add()
    scheduled.plant()
    return lambda: scheduled.schedules.pause_schedule(definition.id)


def resume_schedule(scheduled: ScheduledApis) -> Transition:
    """Return the end of that pause."""
    pause_schedule(scheduled)()
    return lambda: scheduled.schedules.resume_schedule(scheduled.define().id)


def delete_schedules(scheduled: ScheduledApis) -> Transition:
    """Return the end of a schedule that is planted."""
    definition = scheduled.add()
    scheduled.plant()
    return lambda: scheduled.schedules.delete_schedules([definition.id])


def plant(scheduled: ScheduledApis) -> Transition:
    """Return what enqueues a job that is due later, and one of a fair queue that is due at once."""
    definition = scheduled.define("late", queue="fair")
    scheduled.set(scheduled.define(), replace(definition, job=replace(definition.job, tenant="acme")))
    (late,) = scheduled.schedules.find([definition.id])
    assert late
    planned = scheduled.planter._plan(late, now_us=NOON + HOUR)
    assert planned.plan and planned.plan.occurrences == [NOON + HOUR]
    in_time = scheduled.planter._plan(scheduled.find(scheduled.define()), now_us=NOON + HOUR)
    scheduled.apis.clock.now_us = NOON + HOUR
    later = replace(in_time, plan=planned.plan._replace(occurrences=[NOON + 2 * HOUR]))
    return lambda: scheduled.planter._planting.plant([later, planned])


def promote(scheduled: ScheduledApis) -> Transition:
    """Return the promotion of a job that is due."""
    scheduled.add()
    scheduled.plant()
    scheduled.apis.clock.now_us = NOON + HOUR
    return lambda: scheduled.apis.promotion.promote(["default"])


def claim(scheduled: ScheduledApis) -> Transition:
    """Return the claim of a job that begins."""
    scheduled.add()
    scheduled.plant()
    scheduled.advance_to(NOON + HOUR)
    worker = scheduled.apis.worker()
    return lambda: worker.take(5)


def claim_and_stop(scheduled: ScheduledApis) -> Transition:
    """Return the claim of a job that is parked, and stops another one."""
    run_first(scheduled, overlap="stop")
    worker = scheduled.apis.worker()
    return lambda: worker.take(5)


def claim_and_drop(scheduled: ScheduledApis) -> Transition:
    """Return the claim of a job that is to be dropped."""
    run_first(scheduled)
    worker = scheduled.apis.worker()
    return lambda: worker.take(5)


def claim_one(scheduled: ScheduledApis) -> Transition:
    """Return a person's claim of a job that waits for its time."""
    scheduled.add()
    scheduled.plant()
    (planted,) = scheduled.apis.scheduled()
    worker = scheduled.apis.worker()
    return lambda: worker.api.claim_one(planted, worker_name="a shell")


def fail(scheduled: ScheduledApis) -> Transition:
    """Return the failure that pauses a schedule, while another job waits for the end of this one."""
    claim = run_first(scheduled, overlap="wait", pause_after=1)
    scheduled.take()
    worker = scheduled.apis.worker()
    return lambda: worker.take(0, settle=[settlement(claim, Action.DEAD_LETTER)])


def reclaim(scheduled: ScheduledApis) -> Transition:
    """Return the same failure, of a job whose lease has expired."""
    run_first(scheduled, overlap="wait", pause_after=1)
    scheduled.take()
    found = scheduled.apis.promotion.read_expired_leases(scheduled.apis.expired_leases())
    dead = [Reclaim(lease=item.lease, attempts=item.attempts, queue=None) for item in found]
    return lambda: scheduled.apis.promotion.reclaim(dead)


def cancel(scheduled: ScheduledApis) -> Transition:
    """Return what a person does to a planted job."""
    scheduled.add()
    scheduled.plant()
    (planted,) = scheduled.apis.scheduled()
    return lambda: scheduled.apis.operations.cancel(planted)


def let_in(scheduled: ScheduledApis) -> Transition:
    """Return the step that lets the next job in after the end of one."""
    claim = run_first(scheduled, overlap="wait")
    scheduled.take()
    scheduled.settle(claim)
    promoted = scheduled.apis.promote()
    return lambda: scheduled.apis.promotion.let_in(promoted.limits_to_let_in, promoted.parked_in)


#: What each transition writes, or must read to know what to write.
NOUNS: dict[Callable[[ScheduledApis], Transition], str] = {
    set_schedules: "schedules next_planting jobs",
    pause_schedule: "schedules next_planting",
    resume_schedule: "schedules next_planting",
    delete_schedules: "schedules next_planting",
    plant: "schedules next_planting jobs job_extras queues next_due tenant_jobs turns tenants "
    "scheduled:default ready:fair",
    promote: "next_planting",
    claim: "schedules next_planting job_extras claim_limits limit_jobs jobs attempts",
    claim_and_stop: "schedules next_planting claim_records waiting_for limit_jobs next_let_in job_extras",
    claim_and_drop: "schedules next_planting job_extras claim_limits limit_jobs",
    claim_one: "schedules job_extras claim_limits limit_jobs",
    fail: "schedules next_planting job_extras limit_jobs next_let_in dead_letters dead_bodies",
    reclaim: "schedules next_planting job_extras limit_jobs next_let_in dead_letters dead_bodies",
    cancel: "schedules next_planting claim_records job_extras limit_jobs next_let_in",
    let_in: "schedules jobs limit_jobs next_let_in waiting_for job_extras",
}


@pytest.mark.parametrize(
    ("prepare", "noun"), [(prepare, noun) for prepare, nouns in NOUNS.items() for noun in nouns.split()]
)
def test_nothing_is_changed(
    scheduled: ScheduledApis, prepare: Callable[[ScheduledApis], Transition], noun: str
) -> None:
    apis, transition = scheduled.apis, prepare(scheduled)
    apis.client.set(apis.keys(noun), "x")
    before = apis.dump()
    with pytest.raises(ScriptFault):
        transition()
    assert apis.dump() == before


@pytest.mark.parametrize("prepare", NOUNS)
def test_it_is_carried_out_otherwise(scheduled: ScheduledApis, prepare: Callable[[ScheduledApis], Transition]) -> None:
    transition = prepare(scheduled)
    before = scheduled.apis.dump()
    transition()
    assert scheduled.apis.dump() != before
