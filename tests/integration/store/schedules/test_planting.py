"""Planting: each occurrence has one job, due at its time, and at most one waits."""

import pytest

from django_delayq.clock import moment
from django_delayq.dispatcher.planter import Planter
from tests.integration.store.schedules.conftest import NOON, ScheduledApis
from tests.shard_apis import HOUR, SECOND


def test_each_occurrence_has_one_job(scheduled: ScheduledApis) -> None:
    scheduled.add(args=[7])
    ran = []
    for quarter in range(1, 17):
        scheduled.advance_to(NOON + quarter * HOUR // 4)
        assert len(scheduled.apis.scheduled()) + len(scheduled.apis.ready()) == 1
        ran += scheduled.run_all()
    assert ran == [1, 2, 3, 4]


def test_a_job_is_planted_soon_after_the_one_before(scheduled: ScheduledApis) -> None:
    definition = scheduled.add()
    scheduled.plant()
    assert list(scheduled.apis.scheduled().values()) == [NOON + HOUR]
    planting = scheduled.apis.client.zscore(scheduled.apis.keys("next_planting"), definition.id)
    assert NOON + HOUR <= planting < NOON + 1.1 * HOUR
    scheduled.advance_to(int(planting) - 1)
    assert not scheduled.apis.scheduled()
    assert scheduled.run_all() == [1]
    scheduled.advance_to(int(planting))
    assert list(scheduled.apis.scheduled().values()) == [NOON + 2 * HOUR]


@pytest.mark.parametrize("overlap", ["skip", "wait", "stop", "allow"])
def test_while_no_worker_claims_one_job_waits_and_stands_for_all(scheduled: ScheduledApis, overlap: str) -> None:
    scheduled.add(overlap=overlap)
    for quarter in range(1, 42):
        scheduled.advance_to(NOON + quarter * HOUR // 4)
        assert len(scheduled.apis.scheduled()) + len(scheduled.apis.ready()) == 1
    assert scheduled.run_all() == [1]
    scheduled.advance_to(NOON + 11 * HOUR)
    assert scheduled.run_all() == [11]
    scheduled.advance_to(NOON + 12 * HOUR)
    assert scheduled.run_all() == [12]


def test_a_waiting_job_that_is_gone_stands_for_nothing(scheduled: ScheduledApis) -> None:
    definition = scheduled.add()
    scheduled.advance_to(NOON + HOUR)
    apis, planted = scheduled.apis, scheduled.find(definition).planted
    assert planted and apis.ready()
    # Edited manually: no script ended it.
    apis.client.delete(apis.keys.ready("default"))
    apis.client.hdel(apis.keys("jobs"), planted)
    apis.client.hdel(apis.keys("job_extras"), planted)
    scheduled.advance_to(NOON + 3 * HOUR // 2)
    scheduled.advance_to(NOON + 2 * HOUR)
    assert scheduled.run_all() == [2]


def test_the_next_promotion_is_when_the_next_job_is_planted(scheduled: ScheduledApis) -> None:
    definition = scheduled.add()
    scheduled.plant()
    scheduled.advance_to(NOON + HOUR)
    planting = int(scheduled.apis.client.zscore(scheduled.apis.keys("next_planting"), definition.id))
    scheduled.apis.clock.now_us = planting - SECOND
    assert scheduled.apis.promote().next_promotion_us == planting


def test_a_new_schedule_notifies_the_dispatcher(scheduled: ScheduledApis) -> None:
    apis = scheduled.apis
    scheduled.plant()
    assert apis.notifications(apis.keys("notify_dispatcher")) == [0]
    scheduled.add()
    assert apis.notifications(apis.keys("notify_dispatcher")) == [1]
    assert apis.promote().sleep_us > 0


def test_two_dispatchers_plant_one_job(scheduled: ScheduledApis) -> None:
    made = [scheduled.add(f"number {number}") for number in range(30)]
    ids = scheduled.apis.promote().schedules
    assert sorted(ids) == sorted(definition.id for definition in made)
    second = Planter(scheduled.apis.shard)
    planned = [second._plan(schedule, now_us=NOON) for schedule in second._planting.read(ids)]
    assert scheduled.plant() == 30
    assert second._planting.plant(planned) == [False] * 30
    assert len(scheduled.apis.scheduled()) == 30


@pytest.mark.parametrize("every", [1, 3_600, 86_400])
def test_the_jobs_of_a_schedule_end_with_it(scheduled: ScheduledApis, every: int) -> None:
    definition = scheduled.add(every=every, end=moment(NOON + 2 * every * SECOND))
    for number in range(1, 5):
        scheduled.advance_to(NOON + number * every * SECOND)
        assert len(scheduled.run_all()) == (number <= 2)
        scheduled.advance_to(NOON + number * every * SECOND + every * SECOND // 2)
    assert scheduled.find(definition).definition == definition
    assert not scheduled.apis.client.exists(scheduled.apis.keys("next_planting"))


def test_a_schedule_that_cannot_be_read_hurts_no_other(scheduled: ScheduledApis) -> None:
    broken, sound = scheduled.add("broken"), scheduled.add("sound")
    key = scheduled.apis.keys("schedules")
    stored = scheduled.apis.client.hget(key, broken.id)
    scheduled.apis.client.hset(key, broken.id, stored.replace(b"every 3600", b"lunar 3600"))
    assert scheduled.plant() == 1
    found = scheduled.find(broken)
    assert found.is_unreadable
    assert "lunar 3600" in str(found.fault)
    assert not scheduled.find(sound).is_unreadable
    # As soon as it can be read, it is planted.
    scheduled.apis.client.hset(key, broken.id, stored)
    assert scheduled.plant() == 0
    scheduled.apis.clock.advance(60 * SECOND)
    assert scheduled.plant() == 1
    assert not scheduled.find(broken).is_unreadable
