"""Processes that do not agree on whether a queue is fair, as during a rolling deploy; and a full Redis."""

from collections.abc import Callable

import pytest

from django_delayq.exceptions import TenantFull
from django_delayq.job.outcome import Action
from django_delayq.store.maintenance.consistency_check import ConsistencyCheck
from django_delayq.testing.local_redis import LocalRedisServer
from tests.integration.store.tenants.conftest import QUEUES
from tests.integration.store.tenants.test_turns import add, tenants
from tests.shard_apis import HOUR, ShardApis, settlement


@pytest.fixture
def unfair(make_apis: Callable[..., ShardApis]) -> ShardApis:
    """The same shard for a process without fair queues."""
    return make_apis(QUEUES={})


def check(apis: ShardApis) -> None:
    """The records of tenants agree with the jobs."""
    assert not list(ConsistencyCheck(apis.shard).walk())


def test_jobs_from_before_take_turns_with_the_others(apis: ShardApis, unfair: ShardApis) -> None:
    unfair.clock.now_us = apis.clock.now_us
    add(unfair, *["big"] * 3, None, None)
    add(apis, *["big"] * 3, "a")
    worker = apis.worker()
    assert sorted(map(str, tenants(worker.take(3, "fair").claims))) == ["None", "a", "big"]
    check(apis)
    assert sorted(map(str, tenants(worker.take(2, "fair").claims))) == ["None", "big"]
    assert tenants(worker.take(9, "fair").claims) == ["big"] * 4
    check(apis)


@pytest.mark.parametrize("before", [0, 100, 200])
def test_a_job_without_a_turn_is_found_among_many_with_one(apis: ShardApis, unfair: ShardApis, before: int) -> None:
    add(apis, *["big"] * before)
    unfair.clock.now_us = apis.clock.now_us
    add(unfair, "late")
    apis.clock.now_us = unfair.clock.now_us
    add(apis, *["big"] * (200 - before))
    worker, served = apis.worker(), 0
    while "late" not in tenants(worker.take(1, "fair").claims):
        served += 1
        # It is looked for from another place in each claim.
        apis.clock.advance(7)
        assert served < 30


def test_a_job_with_a_late_turn_leaves_nothing_behind_when_it_is_cancelled(apis: ShardApis, unfair: ShardApis) -> None:
    raw_ids = [unfair.add(queue="fair", tenant=name) for name in (None, "a", None)]
    apis.worker().take(1, "fair", may_recover=True)
    waiting = [raw_id for raw_id in raw_ids if apis.where(raw_id) == ["ready:fair"]]
    assert apis.client.zcard(apis.keys("tenant_jobs")) == len(waiting) == 2
    for raw_id in waiting:
        assert apis.operations.cancel(raw_id)
    assert not apis.client.exists(apis.keys("tenant_jobs"))
    check(apis)


def test_a_paused_tenant_is_not_served_if_its_jobs_came_from_another_process(
    apis: ShardApis, unfair: ShardApis
) -> None:
    add(unfair, *["a"] * 3)
    assert apis.operations.workers.pause_tenant("fair", "a", by="ann")
    worker = apis.worker()
    reply = worker.take(4, "fair")
    assert not reply.claims
    assert not reply.has_more
    assert apis.operations.workers.resume_tenant("fair", "a")
    assert len(worker.take(4, "fair").claims) == 3


def test_a_worker_of_an_earlier_release_leaves_entries_that_the_next_claim_drops(apis: ShardApis) -> None:
    add(apis, *["a"] * 4, "b")
    first, second, third, fourth, _ = apis.client.zrange(apis.keys.ready("fair"), 0, -1, withscores=True)
    # It claimed two jobs; one of them waits again, with another rank.
    apis.client.zrem(apis.keys.ready("fair"), first[0])
    apis.client.hdel(apis.keys("jobs"), first[0][:12])
    apis.client.hdel(apis.keys("job_extras"), first[0][:12])
    apis.client.zadd(apis.keys.ready("fair"), {second[0]: second[1] + 900})
    claims = [claim for _ in range(5) for claim in apis.worker().take(1, "fair").claims]
    of_a = [claim.raw_id for claim in claims if claim.job and claim.job.tenant == "a"]
    assert of_a == [each[0][:12] for each in (third, fourth, second)]
    assert len(claims) == 4
    check(apis)


def test_jobs_that_an_earlier_release_claimed_do_not_count_for_a_limit(apis: ShardApis) -> None:
    raw_ids = [apis.add(tenant="a", queue="capped") for _ in range(3)]
    with pytest.raises(TenantFull):
        apis.add(tenant="a", queue="capped")
    for raw_id in raw_ids[:2]:
        [member] = [each for each in apis.client.zrange(apis.keys.ready("capped"), 0, -1) if each[:12] == raw_id]
        apis.client.zrem(apis.keys.ready("capped"), member)
        apis.client.hdel(apis.keys("jobs"), raw_id)
        apis.client.hdel(apis.keys("job_extras"), raw_id)
    apis.add(tenant="a", queue="capped")
    apis.add(tenant="a", queue="capped")
    with pytest.raises(TenantFull):
        apis.add(tenant="a", queue="capped")
    check(apis)


def test_a_worker_without_the_setting_takes_jobs_by_age_and_leaves_no_turn_behind(
    apis: ShardApis, unfair: ShardApis
) -> None:
    add(apis, *["big"] * 4, "a", "b")
    worker = unfair.worker()
    assert tenants(worker.take(5, "fair").claims) == ["big"] * 4 + ["a"]
    assert tenants(apis.worker().take(5, "fair").claims) == ["b"]
    check(apis)


@pytest.mark.parametrize("name", [None, "late"])
@pytest.mark.parametrize("count", [1, 40])
def test_a_released_job_with_a_late_turn_costs_its_tenant_none(
    apis: ShardApis, unfair: ShardApis, name: str | None, count: int
) -> None:
    add(unfair, *[name] * count)
    apis.clock.now_us = unfair.clock.now_us
    add(apis, *["b"] * 40)
    worker = apis.worker()
    for _ in range(10):
        released = [settlement(claim, Action.RELEASE) for claim in worker.take(4, "fair").claims]
        worker.take(0, settle=released)
    served = tenants(worker.take(20, "fair").claims)
    assert served.count(name) == min(count, 10)
    assert not apis.client.zcount(apis.keys("turns"), 1, 1)
    check(apis)


@pytest.mark.parametrize("name", [None, "a"])
def test_a_worker_without_the_setting_leaves_no_turn_that_a_claim_gave(
    apis: ShardApis, unfair: ShardApis, name: str | None
) -> None:
    add(unfair, *[name] * 4)
    assert len(apis.worker().take(1, "fair").claims) == 1
    assert apis.client.zcard(apis.keys("tenant_jobs")) == 3
    assert len(unfair.worker().take(4, "fair").claims) == 3
    assert not apis.client.exists(apis.keys("tenant_jobs"))
    assert not any(entry.startswith(b"\0") for entry in apis.client.zrange(apis.keys("turns"), 0, -1))
    check(apis)


def test_a_job_that_moves_takes_the_order_of_its_new_queue(apis: ShardApis) -> None:
    raw_id = apis.add(tenant="large", queue="default")
    for _ in range(6):
        apis.add(tenant="large", queue="default")
        apis.add(tenant="b", queue="fair")
    for moving in list(apis.ready()):
        assert apis.operations.move(moving, "fair")
    check(apis)
    claims = apis.worker().take(8, "fair").claims
    assert sorted(map(str, tenants(claims))) == ["b"] * 2 + ["large"] * 6
    later = apis.add(tenant="a", queue="fair", delay=HOUR)
    assert apis.operations.move(later, "default")
    assert raw_id
    check(apis)


def test_a_full_redis_serves_tenants(start_redis: Callable[..., LocalRedisServer]) -> None:
    own = ShardApis(start_redis(options={"maxmemory-policy": "noeviction"}).url, QUEUES=QUEUES)
    try:
        add(own, *["a"] * 5, "b", "large")
        own.fill_memory()
        worker = own.worker()
        claims = worker.take(3, "fair").claims
        assert len(claims) == 3
        assert not worker.take(0, settle=[settlement(claims[0], Action.RELEASE)]).lost
        assert not worker.take(0, settle=[settlement(claim, Action.ACKNOWLEDGE) for claim in claims[1:]]).lost
        assert own.operations.workers.pause_tenant("fair", "b", by="ann")
        assert own.operations.workers.resume_tenant("fair", "b")
        assert len(worker.take(9, "fair").claims) == 5
        own.free_memory()
        check(own)
    finally:
        own.close()
