"""Moves: a schedule goes to another shard with its pause and its outcomes, and no occurrence has two jobs."""

from django_delayq.job.layout import Layout
from django_delayq.recurring.run import RunOutcome
from django_delayq.store.growth.schedule_moves import ScheduleMoves
from django_delayq.store.schedules.schedules import Schedules
from django_delayq.store.schedules.stored_schedule import StoredSchedule
from tests.integration.store.schedules.conftest import NOON, ScheduledApis
from tests.shard_apis import HOUR

LATER = Layout.of(1, number=1).spread_over(2)
NAMES = [f"report {number}" for number in range(8)]


def moved(scheduled: ScheduledApis) -> int:
    """Move what belongs to other shards; return how many are left."""
    scheduled.apis.store.layouts.store(LATER)
    return ScheduleMoves(scheduled.apis.store.producer_shard(0)).move_all()


def name_in(shard: int, scheduled: ScheduledApis) -> str:
    """Return a name of a schedule that belongs to a shard of two."""
    return next(name for name in NAMES if LATER.home(scheduled.define(name).id) == shard)


def there(scheduled: ScheduledApis, name: str) -> StoredSchedule | None:
    """Return a schedule as shard 1 stores it."""
    return Schedules(scheduled.apis.store.producer_shard(1)).find([scheduled.define(name).id])[0]


def test_a_schedule_whose_job_runs_moves_when_that_has_ended(scheduled: ScheduledApis) -> None:
    name = name_in(1, scheduled)
    made = scheduled.add(name)
    scheduled.advance_to(NOON + HOUR)
    [claim] = scheduled.take()
    assert moved(scheduled) == 1
    found = scheduled.find(made)
    assert there(scheduled, name) is None and found.running_id is not None
    moves = ScheduleMoves(scheduled.apis.store.producer_shard(0))
    assert moves.hand_over_schedule(made.id, found.record)[0] == b"RUNNING"
    scheduled.settle(claim)
    assert moved(scheduled) == 0
    arrived = there(scheduled, name)
    assert arrived is not None and [run.outcome for run in arrived.runs] == [RunOutcome.DONE]
    assert scheduled.schedules.find([made.id]) == [None]


def test_the_waiting_job_is_withdrawn_and_its_occurrence_planted_there(scheduled: ScheduledApis) -> None:
    name = name_in(1, scheduled)
    scheduled.add(name)
    scheduled.plant()
    assert moved(scheduled) == 0
    scheduled.advance_to(NOON + HOUR)
    assert scheduled.take() == []
    found = there(scheduled, name)
    # It counts as planted up to the moment before it.
    assert found is not None and NOON <= found.record.occurrence_us < NOON + HOUR


def test_a_paused_one_stays_paused_and_one_at_home_stays(scheduled: ScheduledApis) -> None:
    leaving, staying = name_in(1, scheduled), name_in(0, scheduled)
    made, kept = scheduled.add(leaving), scheduled.add(staying)
    scheduled.schedules.pause_schedule(made.id)
    assert moved(scheduled) == 0
    found = there(scheduled, leaving)
    assert found is not None and found.is_paused
    assert scheduled.find(kept) and there(scheduled, staying) is None
