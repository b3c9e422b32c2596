"""Several jobs of a schedule are ready at once, as after an outage of all workers."""

import pytest

from django_delayq.job.outcome import Action
from django_delayq.recurring.plan import Plan
from django_delayq.store.schedules.planting import Planned, Planting, new_job
from tests.integration.store.schedules.conftest import NOON, ScheduledApis, hour_of
from tests.shard_apis import HOUR, SECOND


def ready_jobs(scheduled: ScheduledApis, count: int, **options: object) -> None:
    """Set a schedule, and plant so many of its jobs at once: one plan has several only with `catch_up="all"`."""
    definition, apis = scheduled.add(**options), scheduled.apis
    plan = Plan([NOON + hour * HOUR for hour in range(1, count + 1)], NOON + count * HOUR + 1)
    jobs = [new_job(definition, occurrence_us) for occurrence_us in plan.occurrences]
    apis.clock.now_us = NOON + count * HOUR
    assert Planting(apis.shard).plant([Planned(scheduled.find(definition), plan, jobs)]) == [True]
    assert len(apis.ready()) == count


@pytest.mark.parametrize(("overlap", "waiting"), [("skip", 0), ("wait", 1), ("stop", 1)])
def test_at_most_one_waits(scheduled: ScheduledApis, overlap: str, waiting: int) -> None:
    ready_jobs(scheduled, 4, overlap=overlap)
    (claim,) = scheduled.take()
    assert hour_of(claim) == 1
    assert len(scheduled.apis.parked()) == waiting
    assert not scheduled.apis.ready()


def test_those_that_wait_go_first(scheduled: ScheduledApis) -> None:
    apis = scheduled.apis
    ready_jobs(scheduled, 4, overlap="wait", catch_up="all")
    worker, ran = apis.worker(), []
    # A worker that asks for two gets the first job; the second one is parked then, the others are still ready.
    for _ in range(4):
        (claim,) = worker.take(2).claims
        ran.append(hour_of(claim))
        worker.settle(claim, Action.ACKNOWLEDGE)
        assert not worker.take(2).claims
        assert apis.let_in() == (len(apis.parked()) + len(apis.ready()) > 0)
    assert ran == [1, 2, 3, 4]


def test_the_running_one_is_stopped_although_it_began_together_with_the_one_that_waits(
    scheduled: ScheduledApis,
) -> None:
    apis = scheduled.apis
    ready_jobs(scheduled, 2, overlap="stop")
    (first,) = scheduled.take()
    apis.clock.now_us = NOON + 3 * HOUR - HOUR // 2
    apis.client.zadd(apis.keys("leases"), {first.lease: NOON + 4 * HOUR})
    scheduled.plant()
    scheduled.advance_to(NOON + 3 * HOUR)
    assert not scheduled.take()
    assert apis.worker().api.heartbeat([first.lease]).stops == {first.lease: 10 * SECOND}
