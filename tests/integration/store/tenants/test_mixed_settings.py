"""Processes that do not agree on whether a queue is fair, as during a rolling deploy; and a full Redis."""

from collections.abc import Callable

import pytest

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


def test_jobs_from_before_go_first_and_then_the_tenants_take_turns(apis: ShardApis, unfair: ShardApis) -> None:
    unfair.clock.now_us = apis.clock.now_us
    add(unfair, *["big"] * 3, None)
    add(apis, *["big"] * 3, "a")
    worker = apis.worker()
    assert tenants(worker.take(4, "fair").claims) == ["big", "big", "big", None]
    assert sorted(map(str, tenants(worker.take(2, "fair").claims))) == ["a", "big"]
    assert len(worker.take(9, "fair").claims) == 2
    check(apis)


def test_a_new_job_without_a_turn_is_found_behind_many_with_one(apis: ShardApis, unfair: ShardApis) -> None:
    add(apis, *["big"] * 200)
    unfair.clock.now_us = apis.clock.now_us
    add(unfair, "late")
    assert "late" in tenants(apis.worker().take(2, "fair").claims)


def test_a_worker_without_the_setting_takes_jobs_by_age_and_leaves_no_turn_behind(
    apis: ShardApis, unfair: ShardApis
) -> None:
    add(apis, *["big"] * 4, "a", "b")
    worker = unfair.worker()
    assert tenants(worker.take(5, "fair").claims) == ["big"] * 4 + ["a"]
    assert tenants(apis.worker().take(5, "fair").claims) == ["b"]
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
