"""claim_one: a person claims one job by its id, wherever it waits; nobody else has it then."""

import pytest

from django_delayq.job.outcome import Action
from django_delayq.store.maintenance.consistency_check import ConsistencyCheck
from tests.shard_apis import HOUR, SECOND, START, ShardApis


def test_a_ready_job_is_claimed_before_others(apis: ShardApis) -> None:
    apis.add(priority=50)
    raw_id = apis.add("argument")
    claim = apis.worker().api.claim_one(raw_id, worker_name="shell/1")
    assert claim is not None
    assert claim.job is not None
    assert (claim.raw_id, claim.queue, claim.attempt, claim.job.args) == (raw_id, "default", 1, ["argument"])
    assert apis.where(raw_id) == ["leases"]
    assert apis.inspection.find(raw_id).worker == "shell/1"
    assert list(ConsistencyCheck(apis.shard).walk()) == []


def test_a_scheduled_job_is_claimed_before_it_is_due(apis: ShardApis) -> None:
    raw_id = apis.add(delay=HOUR, key="k")
    claim = apis.worker().api.claim_one(raw_id, worker_name="shell/1")
    assert claim is not None
    assert claim.due_us == (START + HOUR) // 1_000 * 1_000
    assert not apis.client.exists(apis.keys("next_due"))
    assert list(ConsistencyCheck(apis.shard).walk()) == []


def test_a_recovered_job_and_one_of_a_paused_queue_are_claimed(apis: ShardApis) -> None:
    raw_id, worker = apis.add(), apis.worker()
    (claim,) = worker.take().claims
    worker.settle(claim, Action.RETRY, suspect=True, keeps_rank=True)
    apis.operations.pause("default", by="ann")
    found = apis.worker().api.claim_one(raw_id, worker_name="shell/1")
    assert found is not None
    assert found.attempts.crash_suspected


@pytest.mark.parametrize("state", ["claimed", "dead", "gone"])
def test_a_job_that_does_not_wait_is_not_claimed(apis: ShardApis, state: str) -> None:
    raw_id = apis.add_dead() if state == "dead" else apis.add()
    if state == "claimed":
        apis.worker().take()
    if state == "gone":
        apis.operations.cancel(raw_id)
    assert apis.worker().api.claim_one(raw_id, worker_name="shell/1") is None
    assert apis.inspection.find(raw_id).state == state


def test_the_claim_is_renewed_and_settled_as_others(apis: ShardApis) -> None:
    raw_id, worker = apis.add(), apis.worker()
    claim = worker.api.claim_one(raw_id, worker_name="shell/1")
    assert claim is not None
    apis.clock.advance(20 * SECOND)
    assert not worker.api.heartbeat([claim.lease]).lost
    apis.clock.advance(20 * SECOND)
    assert apis.promote().expired_leases == []
    assert not worker.settle(claim, Action.ACKNOWLEDGE).lost
    assert apis.where(raw_id) == []


def test_without_heartbeats_the_job_is_taken_back(apis: ShardApis) -> None:
    raw_id, worker = apis.add(), apis.worker()
    claim = worker.api.claim_one(raw_id, worker_name="shell/1")
    assert claim is not None
    apis.expire_leases()
    assert apis.where(raw_id) == ["ready:default"]
    assert worker.settle(claim, Action.ACKNOWLEDGE).lost == {claim.lease}


def test_two_claims_of_one_worker_have_two_tokens(apis: ShardApis) -> None:
    worker = apis.worker()
    claims = [worker.api.claim_one(apis.add(), worker_name="shell/1") for _ in range(2)]
    assert len({claim.lease[14:] for claim in claims if claim}) == 2


def test_a_full_memory_does_not_hinder_it(own_apis: ShardApis) -> None:
    raw_id = own_apis.add(delay=HOUR)
    own_apis.fill_memory()
    assert own_apis.worker().api.claim_one(raw_id, worker_name="shell/1")


def test_a_claim_without_a_heartbeat_counts_no_attempt(apis: ShardApis) -> None:
    """Its reply was lost, or its process ended before the code began."""
    raw_id, worker = apis.add(), apis.worker()
    claim = worker.api.claim_one(raw_id, worker_name="shell/1")
    assert claim is not None
    [item] = apis.promotion.read_expired_leases(apis.expired_leases())
    assert item.unconfirmed


def test_a_heartbeat_confirms_the_claim(apis: ShardApis) -> None:
    raw_id, worker = apis.add(), apis.worker()
    claim = worker.api.claim_one(raw_id, worker_name="shell/1")
    assert claim is not None
    assert not worker.api.heartbeat([claim.lease]).lost
    [item] = apis.promotion.read_expired_leases(apis.expired_leases())
    assert not item.unconfirmed
