"""Interleavings: whatever several processes do while shards are added, what belongs together is in one shard."""

import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from django_delayq.exceptions import KeyHeld
from django_delayq.store.digests import routings_of
from django_delayq.store.growth.growth import Growth
from django_delayq.store.growth.lingering import Lingering
from django_delayq.store.records import ExtrasRecord
from django_delayq.store.store import Store, get_store
from tests.integration.growth.several import Process

VALUES = [f"value {number}" for number in range(12)]
KINDS = ("key", "start", "tenant", "limit", "tenant and key")


@pytest.fixture(autouse=True)
def _two_shards(delayq_settings: Any) -> Iterator[None]:
    limits = {"api": {"max_running": 1}}
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "SHARDS": 2, "ON_COMMIT": False, "LIMITS": limits}
    yield
    get_store().disconnect_idle()


def options(kind: str, value: str) -> dict[str, Any]:
    """Return the options of a job with a value."""
    return {
        "key": {"key": value},
        "start": {"key": f"start {value}", "until": "start"},
        "tenant": {"tenant": value},
        "limit": {"limit": ("api", value)},
        "tenant and key": {"tenant": value, "key": value},
    }[kind]


def split(store: Store, shards: int) -> dict[bytes, set[int]]:
    """Return the routing values that have jobs in more than one shard."""
    found = dict[bytes, set[int]]()
    for index in range(shards):
        shard = store.producer_shard(index)
        for record in shard.execute("HVALS", shard.keys("job_extras")):
            for value in routings_of(ExtrasRecord.unpack(record))[1]:
                found.setdefault(value, set()).add(index)
    return {value: places for value, places in found.items() if len(places) > 1}


@pytest.mark.parametrize("seed", range(30))
def test_no_value_is_ever_in_two_shards(seed: int) -> None:
    chance = random.Random(seed)
    processes, live, most = [Process() for _ in range(3)], list[Any](), 2
    store = processes[0].store
    store.check_shards_once()
    growth = Growth(store.layouts, store.producer_shard)
    sizes = sorted(chance.sample(range(3, 12), chance.choice([1, 2, 3])))
    for _ in range(chance.choice([60, 150])):
        action = chance.random()
        if action < 0.62:
            process, kind, value = chance.choice(processes), chance.choice(KINDS), chance.choice(VALUES)
            unique = chance.choice(["keep", "replace", "reject"]) if "key" in options(kind, value) else "keep"
            with suppress(KeyHeld):
                live.append((process, process.enqueue(**options(kind, value), unique=unique)))
        elif action < 0.82 and live:
            process, handle = live.pop(chance.randrange(len(live)))
            process.call(handle.cancel)
        elif action < 0.90:
            processes[chance.randrange(1, 3)] = Process()
        elif action < 0.93 and sizes:
            most = sizes.pop(0)
            growth.spread_over(most)
        elif action < 0.97:
            Lingering(store.producer_shard(chance.randrange(store.shard_count))).count()
        elif action < 0.98:
            # A count that does not end, as after a kill.
            store.layouts.read()
            Lingering(store.producer_shard(0)).count_lingering("begin", store.layout.number)
        else:
            left = growth.count()
            if not left and not growth.move_schedules():
                growth.finish()
        assert not split(store, 12), f"seed {seed}"
    for process, handle in live:
        process.call(handle.cancel)
    assert not growth.count()
    growth.move_schedules()
    growth.finish()
    assert store.layout.is_finished and store.layout.shards == most
