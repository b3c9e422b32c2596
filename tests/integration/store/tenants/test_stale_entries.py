"""Stale entries: a worker of an earlier release claims jobs of tenants, and leaves what is stored of their turns."""

from collections.abc import Callable

import pytest

from django_delayq.store.digests import queue_hash, tenant_digest
from django_delayq.store.maintenance.consistency_check import ConsistencyCheck
from tests.integration.store.tenants.test_turns import tenants
from tests.shard_apis import SECOND, ShardApis

#: Most stale entries that one exchange drops.
MOST = 512


def add_many(apis: ShardApis, count: int, *names: str, queue: str = "fair") -> None:
    """Enqueue jobs of these tenants in turn."""
    drafts = [apis.draft(tenant=names[number % len(names)], queue=queue) for number in range(count)]
    for at in range(0, count, 250):
        apis.enqueue(*drafts[at : at + 250])


def claim_as_before(apis: ShardApis, queue: str = "fair") -> None:
    """Let a worker of an earlier release run all ready jobs of a queue."""
    raw_ids = list(apis.ready(queue))
    apis.client.delete(apis.keys.ready(queue))
    for noun in ("jobs", "job_extras"):
        apis.client.hdel(apis.keys(noun), *raw_ids)


@pytest.mark.parametrize("want", [1, 64])
def test_jobs_behind_tenants_without_jobs_are_claimed(apis: ShardApis, want: int) -> None:
    add_many(apis, 150, *map(str, range(150)))
    claim_as_before(apis)
    add_many(apis, 3, "a", "b", "c")
    worker, served = apis.worker(), list[str | None]()
    while len(served) < 3:
        claims = worker.take(want, "fair").claims
        assert claims
        served += tenants(claims)
    assert sorted(map(str, served)) == ["a", "b", "c"]
    assert not list(ConsistencyCheck(apis.shard).walk())


@pytest.mark.parametrize("names", [["a"], [str(number) for number in range(700)]])
def test_a_claim_drops_some_stale_entries_and_says_that_there_is_more(apis: ShardApis, names: list[str]) -> None:
    add_many(apis, 2_000, *names)
    claim_as_before(apis)
    apis.add(tenant="z", queue="fair", priority=-10)
    apis.client.delete(apis.keys.notify("fair"))
    worker, exchanges = apis.worker(), 0
    keys = apis.keys("tenant_jobs"), apis.keys("turns")
    left = sum(map(apis.client.zcard, keys))
    while not (reply := worker.take(1, "fair")).claims:
        assert reply.has_more
        assert apis.notifications(apis.keys.notify("fair")) == [1]
        before, left = left, sum(map(apis.client.zcard, keys))
        assert before - left <= MOST
        exchanges += 1
    assert tenants(reply.claims) == ["z"]
    assert exchanges >= 2_000 // MOST


def test_stale_entries_of_one_queue_hold_up_no_other(apis: ShardApis) -> None:
    add_many(apis, 2_000, "a")
    claim_as_before(apis)
    add_many(apis, 1, "a")
    add_many(apis, 1, "b", queue="other")
    reply = apis.worker().take(2, "fair", "other")
    assert (tenants(reply.claims), reply.has_more) == (["b"], True)


def test_jobs_among_those_of_a_paused_tenant_are_found_behind_stale_entries(apis: ShardApis) -> None:
    for _ in range(600):
        apis.add(tenant="a", queue="fair", priority=10)
    claim_as_before(apis)
    apis.operations.workers.pause_tenant("fair", "paused", by="ann")
    add_many(apis, 100, "paused")
    apis.clock.advance(SECOND)
    add_many(apis, 1, "z")
    apis.clock.advance(SECOND)
    # No claim looks for a job without a turn where `z` is.
    apis.clock.now_us -= apis.clock.now_us % 201
    add_many(apis, 100, "paused")
    worker = apis.worker()
    reply = worker.take(1, "fair")
    assert (reply.claims, reply.has_more) == ([], True)
    reply = worker.take(1, "fair")
    assert (tenants(reply.claims), reply.has_more) == (["z"], False)


def test_stale_entries_of_a_paused_tenant_hide_no_job_without_a_turn(
    apis: ShardApis, make_apis: Callable[..., ShardApis]
) -> None:
    add_many(apis, 5, "paused")
    apis.operations.workers.pause_tenant("fair", "paused", by="ann")
    claim_as_before(apis)
    unfair = make_apis(QUEUES={})
    for _ in range(5):
        unfair.add(queue="fair")
    worker = apis.worker()
    assert len(worker.take(4, "fair").claims) == 4
    assert len(worker.take(4, "fair").claims) == 1


def test_a_claim_drops_some_turns_of_paused_tenants_that_are_not_to_have_any(apis: ShardApis) -> None:
    names = [str(number) for number in range(700)]
    add_many(apis, 700, *names)
    paused = {queue_hash("fair") + tenant_digest(name): b"1 ann" for name in names}
    apis.client.hset(apis.keys("tenants"), mapping=paused)
    apis.add(tenant="z", queue="fair", priority=-10)
    worker = apis.worker()
    reply = worker.take(1, "fair")
    assert (reply.claims, reply.has_more) == ([], True)
    assert apis.client.zcard(apis.keys("turns")) == 701 - MOST
    assert tenants(worker.take(1, "fair").claims) == ["z"]


def test_a_turn_that_was_edited_is_served_at_once_after_it_was_mended(apis: ShardApis) -> None:
    add_many(apis, 2, "a")
    flow = queue_hash("fair") + tenant_digest("a") + bytes((100,))
    apis.client.hset(apis.keys("tenants"), flow, b"\0" + (1).to_bytes(7))
    worker = apis.worker()
    assert worker.take(1, "fair").has_more
    assert tenants(worker.take(2, "fair").claims) == ["a", "a"]
    assert not list(ConsistencyCheck(apis.shard).walk())
