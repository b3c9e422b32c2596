"""What is stored of tenants, edited by hand: the check names it, the repair mends it, and every job is served."""

from collections.abc import Callable

import pytest

from django_delayq.exceptions import ScriptFault
from django_delayq.job.outcome import Action
from django_delayq.store.digests import queue_hash, tenant_digest
from django_delayq.store.maintenance.consistency_check import ConsistencyCheck
from tests.shard_apis import HOUR, ShardApis, settlement

TENANT = queue_hash("fair") + tenant_digest("a")
FLOW = TENANT + bytes((100,))


def codes(apis: ShardApis, *, repair: bool = False) -> set[str]:
    """Return what the check finds."""
    return {found.code for found in ConsistencyCheck(apis.shard).walk(repair=repair)}


@pytest.fixture
def apis(apis: ShardApis) -> ShardApis:
    """Ready and scheduled jobs of two tenants in a fair queue, of which some were served."""
    for name in ("a", "a", "a", "b"):
        apis.add(tenant=name, queue="fair")
    apis.add(tenant="a", queue="fair", delay=HOUR)
    apis.add(tenant="a", queue="default")
    worker = apis.worker()
    ends = [settlement(claim, Action.ACKNOWLEDGE) for claim in worker.take(2, "fair").claims]
    worker.take(0, settle=ends)
    assert not codes(apis)
    return apis


DAMAGES: dict[str, Callable[[ShardApis], object]] = {
    "no record of the turns": lambda apis: apis.client.delete(apis.keys("tenants")),
    "no turns": lambda apis: apis.client.delete(apis.keys("turns")),
    "neither": lambda apis: apis.client.delete(apis.keys("turns"), apis.keys("tenants")),
    "no jobs of tenants": lambda apis: apis.client.delete(apis.keys("tenant_jobs")),
    "a short entry": lambda apis: apis.client.zadd(apis.keys("tenant_jobs"), {b"\0short": 0}),
    "a job that is not there": lambda apis: apis.client.zadd(apis.keys("tenant_jobs"), {b"\2" + TENANT + bytes(14): 0}),
    "a flow without jobs": lambda apis: apis.client.zadd(
        apis.keys("turns"), {b"\0" + TENANT[:6] + bytes((7,)) + bytes(7) + TENANT[6:]: 0}
    ),
    "a short turn": lambda apis: apis.client.zadd(apis.keys("turns"), {b"\1": 0}),
    "another tag": lambda apis: apis.client.hset(apis.keys("tenants"), FLOW, b"\0" + bytes(7)),
    "a long record": lambda apis: apis.client.hset(apis.keys("tenants"), FLOW, b"long" * 9),
    "another type": lambda apis: (apis.client.delete(apis.keys("turns")), apis.client.set(apis.keys("turns"), 1)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_found_and_mended(apis: ShardApis, damage: str) -> None:
    DAMAGES[damage](apis)
    assert codes(apis)
    for _ in range(4):
        if not codes(apis, repair=True):
            break
    assert not codes(apis)
    claims = [claim for _ in range(3) for claim in apis.worker().take(9, "fair", "default").claims]
    assert len(claims) == 3
    assert apis.store.tenants(0).find("fair", "a").waiting == 1


@pytest.mark.parametrize("damage", DAMAGES.keys() - {"another type"})
def test_a_worker_serves_every_job_in_spite_of_it(apis: ShardApis, damage: str) -> None:
    DAMAGES[damage](apis)
    worker = apis.worker()
    assert len([claim for _ in range(4) for claim in worker.take(9, "fair", "default").claims]) == 3


@pytest.mark.parametrize("noun", ["tenant_jobs", "turns", "tenants"])
def test_a_key_of_another_type_fails_before_anything_is_stored(apis: ShardApis, noun: str) -> None:
    apis.client.delete(apis.keys(noun))
    apis.client.set(apis.keys(noun), "edited")
    before = {key: apis.client.dump(key) for key in apis.client.keys("*")}
    with pytest.raises(ScriptFault, match="delayq_check --repair"):
        apis.add(tenant="a", queue="fair")
    with pytest.raises(ScriptFault, match="WRONGTYPE"):
        apis.worker().take(1, "fair")
    with pytest.raises(ScriptFault, match="WRONGTYPE"):
        apis.operations.workers.pause_tenant("fair", "a", by="ann")
    assert {key: apis.client.dump(key) for key in apis.client.keys("*")} == before
