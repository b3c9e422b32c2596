"""Consistency of recurring schedules: manual damage is found, and the repair lets them be planted again."""

from collections.abc import Callable

import pytest

from django_delayq.dispatcher.planter import Planter
from django_delayq.job.job import Job
from django_delayq.recurring.schedule import make_schedule
from django_delayq.store.maintenance.consistency_check import ConsistencyCheck
from django_delayq.store.schedules.definition import Definition
from django_delayq.store.schedules.schedules import Schedules
from tests.shard_apis import HOUR, ShardApis

Found = list[tuple[str, str, bytes]]


def define(apis: ShardApis, name: str, **options: object) -> Definition:
    """Return a definition that is due each hour, whatever became of the last job."""
    schedule = make_schedule(name, now_us=apis.clock.now_us, every=3_600, catch_up="all", overlap="allow", **options)
    return Definition(schedule, Job(raw_id=b"", shard=apis.shard.index, task="tests.sample_app.tasks.noop", queue="q"))


def plant(apis: ShardApis) -> int:
    """Plant what is due; return how many jobs."""
    schedules = apis.promote().schedules
    return Planter(apis.shard).plant(schedules, now_us=apis.clock.now_us) if schedules else 0


def find(apis: ShardApis, *, repair: bool = False) -> Found:
    walk = ConsistencyCheck(apis.shard).walk(repair=repair)
    return [(each.code, each.key.rpartition(":")[2], each.entry) for each in walk]


@pytest.fixture
def schedules(apis: ShardApis) -> Schedules:
    """The schedules of shard 0: "planted", and "paused"."""
    schedules, paused = Schedules(apis.store._producer_shards[0]), define(apis, "paused")
    schedules.set_schedules([define(apis, "planted"), paused])
    schedules.pause_schedule(paused.id)
    assert plant(apis) == 1
    assert find(apis) == []
    return schedules


def test_a_schedule_that_nobody_plants_is_planted(apis: ShardApis, schedules: Schedules) -> None:
    planted = define(apis, "planted").id
    apis.client.delete(apis.keys("next_planting"))
    assert find(apis) == [("NOT_PLANNED", "schedules", planted)]
    assert not apis.client.exists(apis.keys("next_planting"))
    apis.notifications(apis.keys("notify_dispatcher"))
    assert find(apis, repair=True) == [("NOT_PLANNED", "schedules", planted)]
    assert apis.notifications(apis.keys("notify_dispatcher")) == [1]
    assert find(apis) == []
    apis.clock.advance(HOUR)
    assert plant(apis) == 1


def test_a_schedule_that_has_ended_is_sound(apis: ShardApis, schedules: Schedules) -> None:
    end_us = apis.clock.now_us // HOUR * HOUR + HOUR
    definition = define(apis, "ends")
    schedules.set_schedules(
        [
            Definition(
                type(definition.schedule)(name="ends", rule=definition.schedule.rule, end_us=end_us), definition.job
            )
        ]
    )
    assert plant(apis) == 1
    assert find(apis, repair=True) == []
    # The moments of both other schedules are past, and no dispatcher has come.
    apis.clock.advance(3 * HOUR)
    assert find(apis, repair=True) == []


@pytest.mark.parametrize("entry", ["gone", "paused", "short"])
def test_an_entry_of_nothing_to_plant_is_removed(apis: ShardApis, schedules: Schedules, entry: str) -> None:
    id = {"gone": b"12345678", "paused": define(apis, "paused").id, "short": b"short"}[entry]
    apis.client.zadd(apis.keys("next_planting"), {id: 1})
    assert find(apis) == [("MISSING", "next_planting", id)]
    assert find(apis, repair=True) == [("MISSING", "next_planting", id)]
    assert find(apis) == []
    assert apis.client.zscore(apis.keys("next_planting"), id) is None


def test_a_paused_schedule_that_is_due_does_not_keep_the_dispatcher_busy(apis: ShardApis, schedules: Schedules) -> None:
    apis.client.zadd(apis.keys("next_planting"), {define(apis, "paused").id: 1})
    assert plant(apis) == 0
    assert apis.promote().schedules == []


#: What somebody did to a record.
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "its head is cut": lambda record: record[:30],
    "it has more outcomes than bytes": lambda record: record[:35] + b"\xff" + record[36:],
    "it has no definition": lambda record: record[:36],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_record_is_reported_and_left(apis: ShardApis, schedules: Schedules, damage: str) -> None:
    planted, key = define(apis, "planted"), apis.keys("schedules")
    damaged = DAMAGES[damage](apis.client.hget(key, planted.id))
    apis.client.hset(key, planted.id, damaged)
    for _ in range(2):
        assert ("SCHEDULE_DAMAGED", "schedules", planted.id) in find(apis, repair=True)
    assert apis.client.hget(key, planted.id) == damaged
    schedules.set_schedules([planted])
    assert find(apis) == []


def test_an_id_of_another_length_is_reported(apis: ShardApis, schedules: Schedules) -> None:
    apis.client.hset(apis.keys("schedules"), "short", bytes(100))
    assert find(apis, repair=True) == [("SCHEDULE_DAMAGED", "schedules", b"short")]
    schedules.delete_schedules([b"short"])
    assert find(apis) == []


def test_a_schedule_that_this_process_cannot_read_is_left_to_a_later_release(
    apis: ShardApis, schedules: Schedules
) -> None:
    planted, key = define(apis, "planted").id, apis.keys("schedules")
    stored = apis.client.hget(key, planted)
    apis.client.hset(key, planted, stored.replace(b"every 3600", b"lunar 3600"))
    apis.client.delete(apis.keys("next_planting"))
    assert find(apis, repair=True) == []


def test_a_schedule_that_changes_meanwhile_is_left(apis: ShardApis, schedules: Schedules) -> None:
    planted, check = define(apis, "planted"), ConsistencyCheck(apis.shard)
    record = apis.client.hget(apis.keys("schedules"), planted.id)
    schedules.set_schedules([define(apis, "planted", pause_after=3)])
    # A promotion has returned it, and its dispatcher plants the next job.
    apis.client.delete(apis.keys("next_planting"))
    assert check.audit_schedules("schedules", [planted.id], [record], repair=True) == [b"OK"]
    assert not apis.client.exists(apis.keys("next_planting"))


def test_a_full_redis_is_repaired(own_apis: ShardApis) -> None:
    schedules, definition = Schedules(own_apis.store._producer_shards[0]), define(own_apis, "planted")
    schedules.set_schedules([definition])
    own_apis.client.delete(own_apis.keys("next_planting"))
    own_apis.fill_memory()
    assert find(own_apis, repair=True) == [("NOT_PLANNED", "schedules", definition.id)]
    own_apis.free_memory()
    assert find(own_apis) == []
