"""Outcomes: what a schedule keeps of its last jobs, and that it pauses after failures in a row."""

import pytest

from django_delayq.job.outcome import Action
from django_delayq.recurring.run import Run, RunOutcome
from django_delayq.store.maintenance.consistency_check import ConsistencyCheck
from django_delayq.store.promotion import Reclaim
from tests.integration.store.schedules.conftest import NOON, ScheduledApis, hour_of
from tests.shard_apis import HOUR, MS, SECOND

FAILED, DONE = Action.DEAD_LETTER, Action.ACKNOWLEDGE


def run_hour(scheduled: ScheduledApis, hour: int, how: Action = DONE, took: int = 0, **options: object) -> None:
    """Run the job of an hour, whose predecessor has ended."""
    scheduled.advance_to(NOON + hour * HOUR - HOUR // 2)
    scheduled.advance_to(NOON + hour * HOUR)
    (claim,) = scheduled.take()
    scheduled.apis.clock.advance(took)
    scheduled.settle(claim, how, **options)


@pytest.mark.parametrize(
    ("took", "kept_ms"),
    [(0, 0), (1_999, 1), (2_047 * MS, 2_047), (2_049 * MS, 2_048), (1_234_567 * MS, 1_233_920)],
)
def test_how_long_a_job_ran(scheduled: ScheduledApis, took: int, kept_ms: int) -> None:
    definition = scheduled.add()
    run_hour(scheduled, 1, took=took)
    found = scheduled.find(definition)
    assert found.runs == [Run(RunOutcome.DONE, kept_ms)]
    assert found.record.last_start_us == NOON + HOUR
    assert found.record.last_end_us == NOON + HOUR + took // SECOND * SECOND
    assert kept_ms * 1_000 <= took <= (kept_ms + 1) * 1_002


def test_the_last_twenty_are_kept(scheduled: ScheduledApis) -> None:
    definition = scheduled.add()
    for hour in range(1, 31):
        run_hour(scheduled, hour, took=hour * MS)
    assert [run.took_ms for run in scheduled.find(definition).runs] == list(range(30, 10, -1))


def test_it_pauses_after_failures_in_a_row(scheduled: ScheduledApis) -> None:
    definition = scheduled.add(pause_after=2)
    for hour, how in enumerate([FAILED, DONE, FAILED, FAILED], 1):
        assert not scheduled.find(definition).is_paused
        run_hour(scheduled, hour, how)
    assert scheduled.find(definition).is_paused
    assert scheduled.find(definition).record.failures == 2
    scheduled.advance_to(NOON + 5 * HOUR)
    assert scheduled.run_all() == []
    scheduled.schedules.resume_schedule(definition.id)
    assert scheduled.find(definition).record.failures == 0
    run_hour(scheduled, 7)


def test_it_pauses_if_it_has_failed_more_often_than_it_may_by_now(scheduled: ScheduledApis) -> None:
    scheduled.add()
    for hour in (1, 2, 3):
        run_hour(scheduled, hour, FAILED)
    definition = scheduled.add(pause_after=2)
    assert not scheduled.find(definition).is_paused
    run_hour(scheduled, 5, FAILED)
    assert scheduled.find(definition).is_paused


def test_a_job_that_was_planted_already_does_not_begin(scheduled: ScheduledApis) -> None:
    definition = scheduled.add(pause_after=1)
    scheduled.plant()
    scheduled.advance_to(NOON + HOUR)
    (claim,) = scheduled.take()
    scheduled.advance_to(NOON + HOUR * 3 // 2)
    (planted,) = scheduled.apis.scheduled()
    (lease,) = scheduled.apis.expired_leases()
    assert lease == claim.lease
    (item,) = scheduled.apis.promotion.read_expired_leases([lease])
    assert scheduled.apis.promotion.reclaim([Reclaim(lease=lease, attempts=item.attempts, queue=None)]) == [True]
    assert scheduled.find(definition).is_paused
    scheduled.advance_to(NOON + 2 * HOUR)
    assert list(scheduled.apis.ready()) == [planted]
    assert scheduled.run_all() == []
    assert [run.outcome for run in scheduled.find(definition).runs] == [RunOutcome.FAILED]


def test_a_dead_letter_that_is_retried_is_a_job_like_any_other(scheduled: ScheduledApis) -> None:
    apis, definition = scheduled.apis, scheduled.add()
    run_hour(scheduled, 1, FAILED)
    ((dead, died),) = apis.scores(apis.keys("dead_letters")).items()
    scheduled.add(args=[2])
    assert apis.operations.requeue(dead, died_us=died)
    assert not list(ConsistencyCheck(apis.shard).walk())
    (claim,) = scheduled.take()
    assert claim.raw_id == dead
    scheduled.settle(claim)
    assert [run.outcome for run in scheduled.find(definition).runs] == [RunOutcome.FAILED]


@pytest.mark.parametrize("outcome", [RunOutcome.CANCELLED, RunOutcome.EXPIRED])
@pytest.mark.parametrize("kept", [False, True])
def test_a_job_that_was_not_done(scheduled: ScheduledApis, outcome: RunOutcome, kept: bool) -> None:
    definition = scheduled.add()
    run_hour(scheduled, 1, took=SECOND, run_outcome=outcome, value="1" if kept else "")
    assert scheduled.find(definition).runs == [Run(outcome, 1_000)]


def test_a_person_cancels_the_waiting_job(scheduled: ScheduledApis) -> None:
    definition = scheduled.add()
    scheduled.plant()
    (planted,) = scheduled.apis.scheduled()
    assert scheduled.apis.operations.cancel(planted)
    assert scheduled.find(definition).runs == [Run(RunOutcome.CANCELLED, 0)]
    run_hour(scheduled, 2)


def test_a_snapshot_counts_schedules_and_their_faults(scheduled: ScheduledApis) -> None:
    def counts(**options: bool) -> tuple[int, int, int]:
        now = scheduled.apis.store.dashboard(0).snapshot(**options)
        return now.schedules, now.failing_schedules, now.unreadable_schedules

    assert counts(facts=True) == (0, 0, 0)
    failing = scheduled.add(pause_after=1)
    run_hour(scheduled, 1, FAILED)
    paused = scheduled.add("paused", pause_after=1)
    scheduled.schedules.pause_schedule(paused.id)
    assert counts(facts=True) == (2, 1, 0)
    assert counts() == (2, 0, 0)
    unreadable = scheduled.add("unreadable")
    client, key = scheduled.apis.client, scheduled.apis.keys("schedules")
    stored = client.hget(key, unreadable.id)
    client.hset(key, unreadable.id, stored.replace(b"every", b"daily"))
    client.hset(key, "damaged", "x")
    scheduled.plant()
    assert counts(facts=True) == (4, 1, 1)
    # With many, none is looked at.
    client.hset(key, mapping={f"{number}": "x" for number in range(197)})
    assert counts(facts=True) == (201, 0, 0)
    scheduled.schedules.resume_schedule(failing.id)
    client.hdel(key, "1")
    assert counts(facts=True) == (200, 0, 1)


def test_a_job_that_has_expired_keeps_no_later_one_from_beginning(scheduled: ScheduledApis) -> None:
    definition = scheduled.add(catch_up="none")
    scheduled.plant()
    # Nobody promotes until half past two.
    scheduled.advance_to(NOON + 2 * HOUR + HOUR // 2)
    (late,) = scheduled.take()
    assert hour_of(late) == 1
    # Beside it another one would be skipped.
    assert scheduled.plant() == 0
    scheduled.settle(late, run_outcome=RunOutcome.EXPIRED)
    assert scheduled.apis.notifications(scheduled.apis.keys("notify_dispatcher")) == [1]
    assert scheduled.plant() == 1
    assert scheduled.run_all() == [2]
    assert [run.outcome for run in scheduled.find(definition).runs] == [RunOutcome.DONE, RunOutcome.EXPIRED]


def test_a_plan_that_waits_for_a_job_that_has_ended_is_made_anew(scheduled: ScheduledApis) -> None:
    scheduled.add(catch_up="none")
    scheduled.plant()
    apis, planter = scheduled.apis, scheduled.planter
    now_us = apis.clock.now_us = NOON + 2 * HOUR + HOUR // 2
    ids = apis.promote().schedules
    planned = [planter._plan(schedule, now_us=now_us) for schedule in planter._planting.read(ids)]
    assert [list(each.jobs) for each in planned] == [[]]
    (late,) = scheduled.take()
    scheduled.settle(late, run_outcome=RunOutcome.EXPIRED)
    # The dispatcher was slow.
    assert planter._planting.plant(planned) == [True]
    assert scheduled.plant() == 1
    assert scheduled.run_all() == [2]


def test_a_paused_schedule_is_not_planted_when_its_job_expires(scheduled: ScheduledApis) -> None:
    definition = scheduled.add(catch_up="none")
    scheduled.plant()
    scheduled.advance_to(NOON + HOUR)
    (claim,) = scheduled.take()
    scheduled.schedules.pause_schedule(definition.id)
    scheduled.settle(claim, run_outcome=RunOutcome.EXPIRED)
    assert not scheduled.apis.client.exists(scheduled.apis.keys("next_planting"))
