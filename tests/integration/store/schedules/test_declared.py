"""Declared schedules: the code of a process stores them, and deletes those that it does not declare any more."""

import pytest

from django_delayq.exceptions import InvalidSchedule
from django_delayq.store.records import DeclaredBy
from tests.integration.store.schedules.conftest import NOON, ScheduledApis
from tests.shard_apis import HOUR

OLD = DeclaredBy(b"old code", NOON, b"digest of 16 byt")
NEW = DeclaredBy(b"new code", NOON + 1, b"another of 16 by")


def names(scheduled: ScheduledApis) -> dict[str, bool]:
    return {each.definition.schedule.name: each.is_declared for each in scheduled.schedules.scan() if each.definition}


def test_what_is_not_declared_any_more_is_deleted(scheduled: ScheduledApis) -> None:
    assert scheduled.declarations.declared_by() is None
    kept, removed = scheduled.define("kept"), scheduled.define("removed")
    scheduled.add("at run time")
    assert scheduled.declare(kept, removed, by=OLD) == []
    assert scheduled.declarations.declared_by() == OLD
    assert names(scheduled) == {"kept": True, "removed": True, "at run time": False}
    scheduled.plant()
    job = scheduled.find(removed).planted
    record = scheduled.find(kept).record
    assert scheduled.declare(kept, scheduled.define("added"), by=NEW) == [job]
    assert scheduled.declarations.declared_by() == NEW
    assert names(scheduled) == {"kept": True, "added": True, "at run time": False}
    assert scheduled.find(kept).record == record
    scheduled.plant()
    assert len(scheduled.apis.scheduled()) == 3


def test_a_changed_one_is_replaced(scheduled: ScheduledApis) -> None:
    scheduled.declare(scheduled.define(args=[1]), by=OLD)
    scheduled.plant()
    changed = scheduled.define(args=[2])
    scheduled.declare(changed, by=NEW)
    scheduled.plant()
    scheduled.advance_to(NOON + HOUR)
    (claim,) = scheduled.take()
    assert claim.job
    assert claim.job.args == [2]


def test_it_stays_paused(scheduled: ScheduledApis) -> None:
    definition = scheduled.define(args=[1])
    scheduled.declare(definition, by=OLD)
    scheduled.schedules.pause_schedule(definition.id)
    scheduled.declare(scheduled.define(args=[2]), by=NEW)
    assert scheduled.find(definition).is_paused
    assert scheduled.plant() == 0


def test_a_process_that_was_overtaken_changes_nothing(scheduled: ScheduledApis) -> None:
    scheduled.declare(scheduled.define("first"), by=OLD)
    seen = scheduled.declarations.declared_by()
    scheduled.declare(scheduled.define("second"), by=NEW)
    late = scheduled.declarations.declare_schedules([scheduled.define("late")], by=OLD, kept=[], after=seen)
    assert late is None
    late = scheduled.declarations.declare_schedules([scheduled.define("late")], by=OLD, kept=[], after=None)
    assert late is None
    assert names(scheduled) == {"second": True}


def test_what_the_process_cannot_make_stays(scheduled: ScheduledApis) -> None:
    first, second = scheduled.define("first"), scheduled.define("second")
    scheduled.declare(first, second, by=OLD)
    scheduled.declare(first, by=NEW, kept=[second.id])
    assert names(scheduled) == {"first": True, "second": True}
    # It is still known as declared.
    scheduled.declare(first, by=OLD)
    assert names(scheduled) == {"first": True}


def test_no_call_changes_one(scheduled: ScheduledApis) -> None:
    declared, other = scheduled.define("declared"), scheduled.define("other")
    scheduled.declare(declared, by=OLD)
    record = scheduled.find(declared).record
    with pytest.raises(InvalidSchedule, match="the schedule 'declared' is declared in the code of the dispatchers"):
        scheduled.schedules.set_schedules([other, scheduled.define("declared", args=[2])])
    assert names(scheduled) == {"declared": True}
    scheduled.add("other")
    with pytest.raises(InvalidSchedule, match="the schedule 'declared' is declared in the code of the dispatchers"):
        scheduled.schedules.delete_schedules([other.id, declared.id])
    assert names(scheduled) == {"declared": True, "other": False}
    assert scheduled.find(declared).record == record


def test_a_declaration_takes_the_name_of_one_made_at_run_time(scheduled: ScheduledApis) -> None:
    definition = scheduled.add()
    scheduled.declare(definition, by=OLD)
    assert names(scheduled) == {"report": True}
    scheduled.declare(by=NEW)
    assert names(scheduled) == {}


def test_one_that_was_made_at_run_time_after_a_loss_stays(scheduled: ScheduledApis) -> None:
    definition = scheduled.define()
    scheduled.declare(definition, by=OLD)
    scheduled.apis.client.hdel(scheduled.apis.keys("schedules"), definition.id)
    scheduled.add()
    scheduled.declare(by=NEW)
    assert names(scheduled) == {"report": False}
