"""The records of paused tenants: found without jobs, with their names, in hashes of any size, and by older releases."""

from collections.abc import Sequence
from typing import Any

import pytest

from django_delayq.clock import SECOND_US
from django_delayq.store.client.reading import ReadCall, run_alone
from django_delayq.store.digests import queue_hash, tenant_digest
from django_delayq.store.queries.tenants import TenantState
from tests.shard_apis import ShardApis

#: Each byte that a pattern of Redis gives a meaning, and bytes that end or break texts.
NAMES = ["a", "*", "?", "[", "]", "\\", "^", "-", "\x00", "\ud800", "é" * 100, "1700000060000000", " by somebody"]


def paused(apis: ShardApis, queue: str = "fair") -> dict[bytes, TenantState]:
    """Return the paused tenants of a queue by their digests."""
    return {state.digest: state for state in apis.shard.read(apis.store.tenants(0).read_paused(queue))}


@pytest.mark.parametrize("name", NAMES)
def test_a_paused_tenant_without_jobs_is_found_with_its_name(apis: ShardApis, name: str) -> None:
    apis.clock.now_us = at_us = 1_700_000_000 * SECOND_US
    workers = apis.operations.workers
    assert workers.pause_tenant("fair", name, by="ann\x00é")
    assert not workers.pause_tenant("fair", name, by="bob")
    [state] = paused(apis).values()
    assert (state.digest, state.name, state.waiting) == (tenant_digest(name), name, 0)
    assert state.paused is not None
    assert (state.paused.by, state.paused.at_us, state.paused.until_us) == ("ann\x00é", at_us, None)
    assert apis.store.tenants(0).find("fair", name) == state
    assert workers.resume_tenant("fair", name)
    assert not paused(apis)


@pytest.mark.parametrize("queue", ["fair", "*", "q[a-z]?", "\\"])
def test_the_paused_tenants_of_one_queue_are_found(apis: ShardApis, queue: str) -> None:
    for name in (queue, "another"):
        apis.operations.workers.pause_tenant(name, f"of {name}", by="ann")
    assert [state.name for state in paused(apis, queue).values()] == [f"of {queue}"]


def test_every_pause_is_found_for_every_hash_of_a_queue(apis: ShardApis) -> None:
    queues = [f"q{number}" for number in range(300)]
    for queue in queues:
        apis.operations.workers.pause_tenant(queue, "a", by="ann")
    assert set(b"".join(map(queue_hash, queues))) == set(range(256))
    assert all([state.name for state in paused(apis, queue).values()] == ["a"] for queue in queues)


def test_pauses_are_found_among_many_tenants_that_are_served(apis: ShardApis) -> None:
    for number in range(1_500):
        apis.add(tenant=f"t{number}", queue="fair")
    for name in ("t7", "without jobs"):
        apis.operations.workers.pause_tenant("fair", name, by="ann")
    steps: list[object] = []

    def read_all(calls: Sequence[ReadCall]) -> list[Any]:
        steps.append(calls)
        return apis.shard.read_all(calls)

    found = run_alone(apis.store.tenants(0).read_paused("fair"), read_all)
    assert len(steps) > 1
    assert {state.name for state in found} == {"t7", "without jobs"}
    assert apis.store.tenants(0).find("fair", "t7").waiting == 1


@pytest.mark.parametrize("name", [b"", b"\xff", b"\xff\xfe", b"\xffb\xff"])
def test_a_record_without_a_name_of_the_tenant_is_read(apis: ShardApis, name: bytes) -> None:
    record = b"1700000000000000 ann" + name
    apis.client.hset(apis.keys("tenants"), queue_hash("fair") + tenant_digest("a"), record)
    [state] = paused(apis).values()
    assert state.name is None
    assert state.paused is not None
    assert (state.paused.by, state.paused.at_us) == ("ann", 1_700_000_000 * SECOND_US)
    raw_id = apis.add(tenant="a", queue="fair")
    assert apis.store.tenants(0).find("fair", "a").name == "a"
    assert not apis.worker().take(1, "fair").claims
    assert apis.operations.workers.resume_tenant("fair", "a")
    assert [claim.raw_id for claim in apis.worker().take(1, "fair").claims] == [raw_id]


def test_the_name_of_a_paused_tenant_whose_job_cannot_be_read_is_that_of_its_pause(apis: ShardApis) -> None:
    raw_id = apis.add(tenant="a", queue="fair")
    apis.client.hset(apis.keys("jobs"), raw_id, b"\xff")
    apis.operations.workers.pause_tenant("fair", "a", by="ann")
    assert [state.name for state in apis.shard.read(apis.store.tenants(0).read_batch("fair", b""))[0]] == ["a"]
