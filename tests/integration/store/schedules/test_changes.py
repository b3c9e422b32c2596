"""Changes: what becomes of the jobs of a schedule that is set again, paused, resumed or deleted."""

import pytest

from django_delayq.job.outcome import Action
from django_delayq.recurring.run import RunOutcome
from tests.integration.store.schedules.conftest import NOON, ScheduledApis
from tests.shard_apis import HOUR


def test_an_equal_one_changes_nothing(scheduled: ScheduledApis) -> None:
    definition = scheduled.add(args=[1])
    scheduled.plant()
    before = scheduled.apis.scheduled()
    scheduled.apis.clock.advance(HOUR // 2)
    record = scheduled.find(definition).record
    scheduled.add(args=[1])
    assert scheduled.find(definition).record == record
    assert scheduled.plant() == 0
    assert scheduled.apis.scheduled() == before


@pytest.mark.parametrize("cancels", [True, False])
def test_its_waiting_job_is_replaced(scheduled: ScheduledApis, cancels: bool) -> None:
    scheduled.add(args=[1])
    scheduled.plant()
    changed = scheduled.define(args=[2], every=1_800)
    to_cancel = scheduled.schedules.set_schedules([changed])
    assert to_cancel == list(scheduled.apis.scheduled())
    # The process that changes it may be killed in between.
    if cancels:
        assert scheduled.apis.operations.cancel(to_cancel[0])
    scheduled.advance_to(NOON + HOUR // 2)
    assert scheduled.run_all() == [0.5]
    scheduled.advance_to(NOON + HOUR * 3 // 4)
    scheduled.advance_to(NOON + HOUR)
    (claim,) = scheduled.take()
    assert claim.job
    assert claim.job.args == [2]
    assert [run.outcome for run in scheduled.find(changed).runs] == [RunOutcome.DONE]


def test_an_occurrence_whose_time_has_come_is_not_lost(scheduled: ScheduledApis) -> None:
    scheduled.add(args=[1])
    scheduled.plant()
    scheduled.advance_to(NOON + HOUR)
    scheduled.apis.clock.advance(1)
    changed = scheduled.add(args=[2])
    assert scheduled.plant() == 1
    (claim,) = scheduled.take()
    assert claim.job
    assert claim.job.args == [2]
    assert claim.job.occurrence
    assert claim.job.occurrence.moment_us == NOON + HOUR
    scheduled.settle(claim)
    scheduled.advance_to(NOON + HOUR * 3 // 2)
    scheduled.advance_to(NOON + HOUR * 2)
    assert scheduled.run_all() == [2]
    assert [run.outcome for run in scheduled.find(changed).runs] == [RunOutcome.DONE] * 2


def test_a_job_that_has_begun_goes_on(scheduled: ScheduledApis) -> None:
    scheduled.add(args=[1])
    scheduled.plant()
    scheduled.advance_to(NOON + HOUR)
    (claim,) = scheduled.take()
    scheduled.settle(claim, Action.RETRY)
    changed = scheduled.add(args=[2])
    scheduled.plant()
    (claim,) = scheduled.take()
    assert claim.job
    assert claim.job.args == [1]
    scheduled.settle(claim, Action.DEAD_LETTER)
    assert [run.outcome for run in scheduled.find(changed).runs] == [RunOutcome.FAILED]


@pytest.mark.parametrize("cancels", [True, False])
def test_pause_and_resume(scheduled: ScheduledApis, cancels: bool) -> None:
    definition = scheduled.add()
    scheduled.plant()
    planted = scheduled.schedules.pause_schedule(definition.id)
    assert planted == scheduled.find(definition).record.planted
    assert scheduled.schedules.pause_schedule(definition.id) is None
    if cancels:
        assert scheduled.apis.operations.cancel(planted)
    for hour in (1, 2):
        scheduled.advance_to(NOON + hour * HOUR)
        assert scheduled.run_all() == []
    scheduled.add(args=[3])
    assert scheduled.find(definition).is_paused
    assert scheduled.schedules.resume_schedule(definition.id)
    assert not scheduled.schedules.resume_schedule(definition.id)
    scheduled.plant()
    scheduled.advance_to(NOON + 3 * HOUR)
    assert scheduled.run_all() == [3]
    assert [run.outcome for run in scheduled.find(definition).runs] == [RunOutcome.DONE]


@pytest.mark.parametrize("cancels", [True, False])
def test_delete(scheduled: ScheduledApis, cancels: bool) -> None:
    definition = scheduled.add()
    scheduled.plant()
    (planted,) = scheduled.apis.scheduled()
    assert scheduled.schedules.delete_schedules([definition.id, b"8 bytes."]) == [planted, None]
    if cancels:
        assert scheduled.apis.operations.cancel(planted)
    scheduled.advance_to(NOON + HOUR)
    assert scheduled.run_all() == []
    assert scheduled.schedules.find([definition.id]) == [None]
    assert scheduled.schedules.count() == 0
    for change in (scheduled.schedules.pause_schedule, scheduled.schedules.resume_schedule):
        with pytest.raises(LookupError):
            change(definition.id)
    # What is left of the deleted one is no job of a new one.
    scheduled.add()
    scheduled.plant()
    scheduled.advance_to(NOON + 2 * HOUR)
    assert scheduled.run_all() == [2]


def test_no_two_versions_are_equal(scheduled: ScheduledApis) -> None:
    definition, schedules = scheduled.add(), scheduled.schedules
    versions = [scheduled.find(definition).record.version]
    # All within a millisecond, and then with a clock that was set back.
    for back in (0, 0, 0, HOUR):
        scheduled.apis.clock.advance(-back)
        for change in (schedules.pause_schedule, schedules.resume_schedule):
            change(definition.id)
            versions.append(scheduled.find(definition).record.version)
    assert len(set(versions)) == len(versions)
