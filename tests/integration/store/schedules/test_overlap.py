"""Overlap: what becomes of a job while another one of its schedule runs."""

import pytest

from django_delayq.job.outcome import Action
from django_delayq.recurring.run import RunOutcome
from django_delayq.store.digests import schedule_id
from tests.integration.store.schedules.conftest import NOON, TASK, ScheduledApis, hour_of
from tests.shard_apis import HOUR, SECOND

ID = schedule_id(TASK, "report")


def outcomes(scheduled: ScheduledApis) -> list[RunOutcome]:
    (found,) = scheduled.schedules.find([ID])
    assert found is not None
    return [run.outcome for run in found.runs]


def start(scheduled: ScheduledApis, **options: object) -> object:
    """Set a schedule, and claim its first job."""
    scheduled.add(**options)
    scheduled.plant()
    scheduled.advance_to(NOON + HOUR)
    (claim,) = scheduled.take()
    return claim


def next_hour(scheduled: ScheduledApis, hour: int) -> None:
    """Plant and promote the job of an hour, with a worker that lives."""
    apis = scheduled.apis
    for moment_us in (NOON + hour * HOUR - HOUR // 2, NOON + hour * HOUR):
        apis.clock.now_us = moment_us
        # The lease of the running job is held.
        for lease, _ in apis.client.zscan_iter(apis.keys("leases")):
            apis.client.zadd(apis.keys("leases"), {lease: moment_us + 60 * SECOND})
        scheduled.plant()


def test_skip(scheduled: ScheduledApis) -> None:
    first = start(scheduled)
    next_hour(scheduled, 2)
    assert not scheduled.take()
    assert outcomes(scheduled) == [RunOutcome.SKIPPED]
    scheduled.settle(first)
    assert outcomes(scheduled) == [RunOutcome.DONE, RunOutcome.SKIPPED]
    next_hour(scheduled, 3)
    assert scheduled.run_all() == [3]


def test_a_job_that_waits_for_its_retry_runs_still(scheduled: ScheduledApis) -> None:
    first = start(scheduled)
    scheduled.settle(first, Action.RETRY, delay=HOUR + 60 * SECOND)
    next_hour(scheduled, 2)
    assert not scheduled.take()
    scheduled.advance_to(NOON + 2 * HOUR + 60 * SECOND)
    assert scheduled.run_all() == [1]
    next_hour(scheduled, 3)
    assert scheduled.run_all() == [3]
    assert outcomes(scheduled) == [RunOutcome.DONE, RunOutcome.DONE, RunOutcome.SKIPPED]


def test_wait(scheduled: ScheduledApis) -> None:
    first = start(scheduled, overlap="wait")
    next_hour(scheduled, 2)
    assert not scheduled.take()
    assert len(scheduled.apis.parked()) == 1
    # One waits; a further one is skipped.
    next_hour(scheduled, 3)
    assert not scheduled.take()
    assert outcomes(scheduled) == [RunOutcome.SKIPPED]
    scheduled.settle(first)
    assert scheduled.apis.let_in() == 1
    assert scheduled.run_all() == [2]
    assert outcomes(scheduled) == [RunOutcome.DONE, RunOutcome.DONE, RunOutcome.SKIPPED]


def test_all_wait(scheduled: ScheduledApis) -> None:
    first = start(scheduled, overlap="wait", catch_up="all")
    for hour in (2, 3, 4):
        next_hour(scheduled, hour)
        assert not scheduled.take()
    assert len(scheduled.apis.parked()) == 3
    for expected in (2, 3, 4):
        scheduled.settle(first)
        assert scheduled.apis.let_in() == 1
        (first,) = scheduled.take()
        assert hour_of(first) == expected


def test_stop(scheduled: ScheduledApis) -> None:
    first = start(scheduled, overlap="stop")
    next_hour(scheduled, 2)
    assert not scheduled.take()
    assert len(scheduled.apis.parked()) == 1
    beat = scheduled.apis.worker().api.heartbeat([first.lease])
    assert beat.stops == {first.lease: 10 * SECOND}
    # Its retry is refused, as of each job that was stopped.
    scheduled.settle(first, Action.RETRY)
    scheduled.settle(first, Action.CANCEL, run_outcome=RunOutcome.CANCELLED)
    assert scheduled.apis.let_in() == 1
    assert scheduled.run_all() == [2]
    assert outcomes(scheduled) == [RunOutcome.DONE, RunOutcome.CANCELLED]


def test_stop_ends_a_job_that_waits_for_its_retry(scheduled: ScheduledApis) -> None:
    first = start(scheduled, overlap="stop")
    scheduled.settle(first, Action.RETRY, delay=HOUR + 60 * SECOND)
    next_hour(scheduled, 2)
    assert not scheduled.take()
    scheduled.advance_to(NOON + 2 * HOUR + 60 * SECOND)
    assert not scheduled.take()
    assert scheduled.apis.let_in() == 1
    assert scheduled.run_all() == [2]


def test_allow(scheduled: ScheduledApis) -> None:
    first = start(scheduled, overlap="allow")
    next_hour(scheduled, 2)
    (second,) = scheduled.take()
    assert hour_of(second) == 2
    scheduled.settle(first)
    scheduled.settle(second)
    assert outcomes(scheduled) == [RunOutcome.DONE, RunOutcome.DONE]


@pytest.mark.parametrize("overlap", ["skip", "wait", "stop"])
def test_two_jobs_in_one_exchange(scheduled: ScheduledApis, overlap: str) -> None:
    apis = scheduled.apis
    first = start(scheduled, overlap=overlap)
    apis.worker().settle(first, Action.RELEASE)
    next_hour(scheduled, 2)
    (claim,) = scheduled.take()
    assert hour_of(claim) == 1
    assert len(apis.parked()) == (overlap != "skip")


def test_a_repeated_answer_drops_the_same_job(scheduled: ScheduledApis) -> None:
    first = start(scheduled)
    next_hour(scheduled, 2)
    worker = scheduled.apis.worker()
    (claim,) = worker.take(5).claims
    assert claim.is_dropped
    (again,) = worker.again().claims
    assert again.is_dropped
    assert again.lease == claim.lease
    scheduled.settle(first)
