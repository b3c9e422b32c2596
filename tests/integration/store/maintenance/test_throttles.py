"""Consistency of throttles: half or foreign entries of windows are found and deleted, and sound windows are not."""

from collections.abc import Callable
from typing import Any

import pytest

from django_delayq.job.unsent import Throttle
from django_delayq.store.digests import key_digest
from django_delayq.store.maintenance.consistency_check import ConsistencyCheck
from tests.shard_apis import HOUR, SECOND, ShardApis

DIGEST = key_digest("tests.sample_app.tasks.noop", "k", None)


def found(apis: ShardApis, *, repair: bool = False) -> list[tuple[str, str, bytes]]:
    walk = ConsistencyCheck(apis.shard).walk(repair=repair)
    return [(each.code, each.key.rpartition(":")[2], each.entry) for each in walk]


def test_windows_are_sound_from_their_first_call_until_they_are_removed(apis: ShardApis) -> None:
    raw_id = apis.add(key="k", unique=Throttle(1), delay=HOUR)
    assert found(apis) == []
    apis.clock.advance(SECOND)
    assert found(apis, repair=True) == [], "over, but not removed yet"
    assert apis.client.hgetall(apis.keys("throttles")) == {DIGEST: raw_id}
    apis.promote()
    assert found(apis) == []


DAMAGES: dict[str, tuple[str, Callable[[ShardApis], Any], bytes]] = {
    "no end": ("throttles", lambda d: d.client.delete(d.keys("throttle_ends")), DIGEST),
    "no job": ("throttle_ends", lambda d: d.client.delete(d.keys("throttles")), DIGEST),
    "a short key": (
        "throttles",
        lambda d: (
            d.client.hset(d.keys("throttles"), b"short", bytes(12)),
            d.client.zadd(d.keys("throttle_ends"), {b"short": 1}),
        ),
        b"short",
    ),
    "a short id": ("throttles", lambda d: d.client.hset(d.keys("throttles"), DIGEST, "x"), DIGEST),
    "no end in time": ("throttle_ends", lambda d: d.client.zadd(d.keys("throttle_ends"), {DIGEST: "inf"}), DIGEST),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_window_is_deleted(apis: ShardApis, name: str) -> None:
    noun, damage, digest = DAMAGES[name]
    apis.add(key="sound", unique=Throttle(60))
    apis.add(key="k", unique=Throttle(60))
    damage(apis)
    assert ("MALFORMED", noun, digest) in found(apis)
    assert found(apis, repair=True)
    assert found(apis) == []
    assert not apis.client.hexists(apis.keys("throttles"), digest)
    assert apis.client.zscore(apis.keys("throttle_ends"), digest) is None


def test_a_full_redis_is_repaired(own_apis: ShardApis) -> None:
    own_apis.add(key="k", unique=Throttle(60))
    own_apis.client.delete(own_apis.keys("throttle_ends"))
    own_apis.fill_memory()
    assert found(own_apis, repair=True) == [("MALFORMED", "throttles", DIGEST)]
    own_apis.free_memory()
    assert found(own_apis) == []


def test_the_extras_of_a_throttled_job_are_sound_and_a_foreign_record_is_not(apis: ShardApis) -> None:
    raw_id = apis.add(key="k", unique=Throttle(60))
    assert apis.client.hget(apis.keys("job_extras"), raw_id) == b"\x08" + DIGEST
    apis.client.hset(apis.keys("job_extras"), raw_id, b"\x08short")
    assert found(apis) == [("MALFORMED", "job_extras", raw_id)]
    assert found(apis, repair=True)
    assert found(apis) == []


def test_a_unique_key_that_a_throttled_job_seems_to_hold_is_free(apis: ShardApis) -> None:
    raw_id = apis.add(key="k", unique=Throttle(60))
    apis.client.hset(apis.keys("unique_keys"), DIGEST, raw_id + b"\0\1")
    assert found(apis, repair=True) == [("MISSING", "unique_keys", DIGEST)]
    assert not apis.enqueue(apis.draft(key="k")).held
