"""Routing: while something is left of an old number of shards, what belongs together is in one shard."""

from collections.abc import Iterator
from typing import Any

import pytest

from django_delayq import Debounce, Throttle, enqueue_many
from django_delayq.exceptions import KeyHeld
from django_delayq.store.digests import tenant_digest
from django_delayq.store.growth.lingering import Lingering
from django_delayq.store.store import get_store
from django_delayq.task.finding import get_job
from tests.integration.growth.several import HOUR, Process, holders
from tests.sample_app.tasks import noop

KEYS = [f"key {number}" for number in range(24)]


@pytest.fixture(autouse=True)
def _two_shards(delayq_settings: Any) -> Iterator[None]:
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "SHARDS": 2, "ON_COMMIT": False}
    yield
    get_store().disconnect_idle()


def test_a_key_is_held_where_it_was_until_its_job_has_ended() -> None:
    process = Process()
    first = {key: process.enqueue(key=key) for key in KEYS}
    process.spread_over(5)
    assert process.count() > 0
    for key in KEYS:
        again = process.enqueue(key=key)
        assert (again.id, again.created) == (first[key].id, False)
        with pytest.raises(KeyHeld) as caught:
            process.enqueue(key=key, unique="reject")
        assert caught.value.holder == first[key].id
        assert process.call(first[key].cancel)
    process.count()
    later = {key: process.enqueue(key=key) for key in KEYS}
    assert all(handle.created for handle in later.values())
    assert {handle.id.split("-")[1] for handle in later.values()} == {"0", "1", "2", "3", "4"}
    assert all(len(found) == 1 for found in holders(process.store, 5).values())


@pytest.mark.parametrize("unique", ["keep", "replace", Debounce(HOUR), Throttle(HOUR)])
def test_a_process_that_knows_the_old_layout_learns_the_new_one(unique: Any) -> None:
    old, new = Process(), Process()
    first = {key: old.enqueue(key=key, unique=unique, until="start") for key in KEYS[:12]}
    new.spread_over(5)
    for key in KEYS:
        one, other = (
            old.enqueue(key=key, unique=unique, until="start"),
            new.enqueue(key=key, unique=unique, until="start"),
        )
        assert one.id == other.id and not other.created
        assert key not in first or one.id == first[key].id
    assert old.store.layout == new.store.layout
    assert all(len(found) == 1 for found in holders(new.store, 5).values())


def test_jobs_of_one_call_go_each_where_it_belongs() -> None:
    process = Process()
    first = [process.enqueue(key=key) for key in KEYS[::2]]
    process.spread_over(5)
    process.count()
    handles = [noop.using(delay=HOUR, key=key).job() for key in KEYS]
    unkeyed = [process.call(noop.using(delay=HOUR).job) for _ in range(40)]
    process.call(enqueue_many, [*handles, *unkeyed])
    assert [handle.id for handle in handles[::2]] == [handle.id for handle in first]
    assert all(handle.created for handle in handles[1::2])
    assert all(process.call(get_job, handle.id) is not None for handle in (*handles, *unkeyed))
    assert {handle.id.split("-")[1] for handle in unkeyed} == {"0", "1", "2", "3", "4"}


def test_tenants_and_limits_stay_where_they_have_jobs(delayq_settings: Any) -> None:
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "LIMITS": {"api": {"max_running": 1}}}
    process = Process()
    for option in ("tenant", "limit"):
        values = {name: name if option == "tenant" else ("api", name) for name in KEYS}
        first = {name: process.enqueue(**{option: value}) for name, value in values.items()}
        process.spread_over(process.store.shard_count + 3)
        # Not before the shards were counted, either.
        for counted in (False, True):
            for name, value in values.items():
                assert process.enqueue(**{option: value}).id.split("-")[1] == first[name].id.split("-")[1]
            if not counted:
                process.count()
        for shard in process.store.shard_numbers():
            found = process.store.producer_shard(shard)
            for noun in ("job_extras", "jobs", "unique_keys"):
                found.execute("DEL", found.keys(noun))
        process.count()
        moved = [process.enqueue(**{option: value}).id.split("-")[1] for value in values.values()]
        assert len(set(moved)) > len({handle.id.split("-")[1] for handle in first.values()})


def test_a_shard_that_does_not_know_the_layout_learns_it_from_a_producer() -> None:
    process = Process()
    process.enqueue(key="k")
    for shard in process.store._producer_shards:
        shard.execute("DEL", shard.keys("shards"))
    assert not process.enqueue(key="k").created
    assert {shard.execute("GET", shard.keys("shards")) for shard in process.store._producer_shards} >= {b"2"}


def test_what_is_stored_during_a_count_lingers() -> None:
    process = Process()
    first = {name: process.enqueue(tenant=name) for name in KEYS}
    process.spread_over(5)
    process.count()
    counts = [Lingering(shard) for shard in process.store._producer_shards]
    numbers = [count.count_lingering("begin", process.store.layout.number) for count in counts]
    during = {name: process.enqueue(tenant=name) for name in KEYS}
    for handle in first.values():
        assert process.call(handle.cancel)
    # The count has passed the places of the new jobs, and finds none of the old ones.
    for count, number in zip(counts, numbers, strict=True):
        assert count.count_lingering("end", number, process.store.layout.number)
    for name in KEYS:
        assert process.enqueue(tenant=name).id.split("-")[1] == during[name].id.split("-")[1]


def test_a_value_whose_first_shard_is_its_home_again_stays_there() -> None:
    process = Process()
    first = {name: process.enqueue(tenant=name) for name in (f"tenant {number}" for number in range(60))}
    process.spread_over(5)
    process.spread_over(6)
    layout = process.store.layout
    places = {name: [place.shard for place in layout.places(tenant_digest(name))] for name in first}
    back = [name for name, found in places.items() if len(found) == 3 and found[0] == found[2]]
    assert back
    # The first two shards are counted before the others.
    for shard in process.store._producer_shards[:2]:
        assert Lingering(shard).count() is not None
    for name in back:
        assert process.enqueue(tenant=name).id.split("-")[1] == first[name].id.split("-")[1]
