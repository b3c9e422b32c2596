"""The turns of a fair queue: which tenant's job is claimed next."""

from collections import Counter
from collections.abc import Sequence

import pytest

from django_delayq.job.job import Claim
from django_delayq.job.outcome import Action
from django_delayq.store.digests import queue_hash, tenant_digest
from django_delayq.store.maintenance.consistency_check import ConsistencyCheck
from tests.shard_apis import HOUR, MS, SECOND, ShardApis, settlement


def tenants(claims: Sequence[Claim]) -> list[str | None]:
    """Return the tenant of each claim."""
    return [claim.job.tenant for claim in claims if claim.job]


def add(apis: ShardApis, *names: str | None, queue: str = "fair", **options: object) -> None:
    """Enqueue a job of each tenant, in this order, a millisecond after the other."""
    for name in names:
        apis.add(tenant=name, queue=queue, **options)
        apis.clock.advance(MS)


def test_tenants_are_served_in_turn(apis: ShardApis) -> None:
    add(apis, *["big"] * 6, "a", "b", "a")
    worker = apis.worker()
    assert sorted(map(str, tenants(worker.take(3, "fair").claims))) == ["a", "b", "big"]
    assert sorted(map(str, tenants(worker.take(2, "fair").claims))) == ["a", "big"]
    assert tenants(worker.take(9, "fair").claims) == ["big"] * 4
    assert not worker.take(9, "fair").claims


def test_a_weight_is_a_share(apis: ShardApis) -> None:
    add(apis, *["large"] * 40, *["small"] * 40)
    worker = apis.worker()
    counts = Counter(tenants([claim for _ in range(20) for claim in worker.take(2, "fair").claims]))
    assert counts == {"large": 30, "small": 10}


def test_one_claim_and_many_claims_have_the_same_order(apis: ShardApis) -> None:
    names = ["big"] * 20 + ["a"] * 7 + ["large"] * 9 + ["b"]
    add(apis, *names, queue="fair")
    add(apis, *names, queue="other")
    worker = apis.worker()
    singly = [tenants(worker.take(1, "fair").claims)[0] for _ in names]
    assert not worker.take(1, "fair").claims
    assert Counter(singly) == Counter(names)
    at_once = tenants(worker.take(64, "other").claims)
    assert at_once[:3] in (singly[:3], at_once[:3])
    assert Counter(at_once) == Counter(names)


def test_a_newcomer_waits_for_one_job_of_each_other_tenant(apis: ShardApis) -> None:
    add(apis, *["big"] * 30)
    worker = apis.worker()
    worker.take(10, "fair")
    add(apis, "new", "new")
    assert tenants(worker.take(4, "fair").claims).count("new") == 2


def test_a_tenant_gains_nothing_by_sending_job_after_job(apis: ShardApis) -> None:
    add(apis, *["big"] * 30)
    worker = apis.worker()
    served: list[str | None] = []
    for _ in range(20):
        add(apis, "sly")
        served += tenants(worker.take(1, "fair").claims)
    assert served.count("sly") == pytest.approx(10, abs=1)


def test_a_higher_priority_comes_first_and_is_shared_too(apis: ShardApis) -> None:
    add(apis, *["big"] * 5, "a")
    add(apis, *["big"] * 3, "b", priority=50)
    worker = apis.worker()
    assert sorted(map(str, tenants(worker.take(2, "fair").claims))) == ["b", "big"]
    assert tenants(worker.take(2, "fair").claims) == ["big", "big"]
    assert sorted(map(str, tenants(worker.take(2, "fair").claims))) == ["a", "big"]


def test_jobs_of_a_tenant_keep_their_order(apis: ShardApis) -> None:
    ids = []
    for _ in range(5):
        ids.append(apis.add(tenant="a", queue="fair"))
        apis.clock.advance(MS)
    worker = apis.worker()
    assert [worker.take(1, "fair").claims[0].raw_id for _ in ids] == ids


def test_jobs_without_a_tenant_share_one_turn(apis: ShardApis) -> None:
    add(apis, *[None] * 6, "a", "b")
    assert sorted(map(str, tenants(apis.worker().take(3, "fair").claims))) == ["None", "a", "b"]


@pytest.mark.parametrize("delay", [None, HOUR])
def test_a_job_without_a_tenant_is_of_none_in_a_queue_that_is_not_fair(apis: ShardApis, delay: int | None) -> None:
    raw_id = apis.add(queue="fair", delay=delay)
    assert len(apis.shard.read(apis.store.tenants(0).read_batch("fair", b""))[0]) == 1
    assert apis.operations.move(raw_id, "default")
    assert not apis.shard.read(apis.store.tenants(0).read_batch("default", b""))[0]
    assert not apis.client.exists(apis.keys("tenant_jobs"))
    assert not list(ConsistencyCheck(apis.shard).walk())
    assert apis.operations.move(raw_id, "fair")
    assert len(apis.shard.read(apis.store.tenants(0).read_batch("fair", b""))[0]) == 1
    assert not list(ConsistencyCheck(apis.shard).walk())


def test_a_job_that_becomes_due_gets_its_turn(apis: ShardApis) -> None:
    add(apis, *["big"] * 6)
    add(apis, "a", delay=SECOND)
    worker = apis.worker()
    assert tenants(worker.take(1, "fair").claims) == ["big"]
    apis.clock.advance(SECOND)
    apis.promote()
    assert "a" in tenants(worker.take(2, "fair").claims)


def test_a_released_job_does_not_cost_its_tenant_a_turn(apis: ShardApis) -> None:
    add(apis, *["big"] * 10, *["a"] * 5)
    worker = apis.worker()
    claims = worker.take(4, "fair").claims
    released = [settlement(claim, Action.RELEASE) for claim in claims if claim.job and claim.job.tenant == "a"]
    assert len(released) == 2
    worker.take(0, settle=released)
    assert tenants(worker.take(2, "fair").claims) == ["a", "a"]


def test_a_job_that_is_released_while_its_tenant_is_paused_does_not_cost_it_a_turn(apis: ShardApis) -> None:
    # With the same tag the other one would be first.
    other, paused = sorted(("a", "b"), key=tenant_digest)
    add(apis, *[other, paused] * 20)
    worker = apis.worker()
    claims = worker.take(8, "fair").claims
    apis.operations.workers.pause_tenant("fair", paused, by="ann")
    released = [settlement(claim, Action.RELEASE) for claim in claims if claim.job and claim.job.tenant == paused]
    assert len(released) == 4
    worker.take(0, settle=released)
    apis.operations.workers.resume_tenant("fair", paused)
    assert tenants(worker.take(1, "fair").claims) == [paused]
    assert not list(ConsistencyCheck(apis.shard).walk())


def test_a_claim_that_expires_does_not_cost_its_tenant_a_turn(apis: ShardApis) -> None:
    add(apis, *["big"] * 10, *["a"] * 5)
    apis.worker().take(4, "fair")
    apis.expire_leases()
    claims = apis.worker().take(4, "fair").claims
    assert sorted(map(str, tenants(claims))) == ["a", "a", "big", "big"]


def test_few_jobs_of_fair_queues_are_claimed_if_few_are_wanted(apis: ShardApis) -> None:
    add(apis, *["big"] * 5)
    add(apis, None, None, queue="default")
    worker = apis.worker()
    reply = worker.take(10, "fair", "default", want_fair=2)
    assert sorted(map(str, tenants(reply.claims))) == ["None", "None", "big", "big"]
    assert reply.has_more
    assert reply.more_are_bounded
    reply = worker.take(10, "fair", "default", want_fair=0)
    assert not reply.claims
    assert reply.more_are_bounded
    reply = worker.take(10, "fair", "default")
    assert len(reply.claims) == 3
    assert not reply.has_more


def test_nothing_is_left_of_a_fair_queue_but_its_clock(apis: ShardApis) -> None:
    add(apis, *["a"] * 3, "b", "large")
    worker = apis.worker()
    worker.take(64, "fair")
    assert apis.client.zcard(apis.keys("tenant_jobs")) == 0
    assert all(entry.startswith(b"\1") for entry in apis.client.zrange(apis.keys("turns"), 0, -1))
    worker.take(1, "fair")
    assert not apis.client.exists(apis.keys("turns"))
    assert list(map(len, apis.client.hkeys(apis.keys("tenants")))) == [7]


def test_tags_that_virtual_time_has_passed_are_dropped(apis: ShardApis) -> None:
    add(apis, *["big"] * 30)
    worker = apis.worker()
    for number in range(10):
        add(apis, f"{number}")
        worker.take(3, "fair")
    assert apis.client.zcard(apis.keys("turns")) <= 3


def test_a_job_that_never_had_a_turn_gives_none_back(apis: ShardApis) -> None:
    """A person claims one job again and again; the tenant gains no turns."""
    add(apis, *["big"] * 40, *["a"] * 40)
    worker = apis.worker()
    worker.take(20, "fair")
    raw_id = next(iter(apis.ready("fair")))
    for _ in range(30):
        claim = worker.api.claim_one(raw_id, worker_name="ann")
        assert claim is not None
        worker.settle(claim, Action.RELEASE)
    served = Counter(tenants(worker.take(20, "fair").claims))
    assert served == {"big": 10, "a": 10}


def test_jobs_that_are_set_aside_do_not_move_the_turn_of_their_tenant(apis: ShardApis) -> None:
    add(apis, *["a"] * 6, "b")
    worker = apis.worker()
    crashed = worker.take(3, "fair").claims
    back = [settlement(claim, Action.RETRY, suspect=True, keeps_rank=True) for claim in crashed]
    worker.take(0, settle=back)
    seen = [claim.raw_id for _ in range(6) for claim in worker.take(1, "fair", may_recover=False).claims]
    assert len(seen) == len(set(seen)) == 4
    assert len(apis.recovered("fair")) == 3
    assert not list(ConsistencyCheck(apis.shard).walk())


def test_paused_tenants_hold_up_no_other_queue(apis: ShardApis) -> None:
    for queue in ("fair", "other"):
        add(apis, *["paused"] * 80, queue=queue)
        apis.operations.workers.pause_tenant(queue, "paused", by="ann")
    old = apis.add(queue="default")
    apis.clock.advance(SECOND)
    for queue in ("fair", "other"):
        add(apis, *["a"] * 5, queue=queue)
    assert [claim.raw_id for claim in apis.worker().take(1, "fair", "other", "default").claims] == [old]


def test_recovered_jobs_of_paused_tenants_hold_up_no_other(apis: ShardApis) -> None:
    add(apis, *["paused"] * 80, "a", *["paused"] * 80)
    worker = apis.worker()
    claims = [claim for _ in range(3) for claim in worker.take(64, "fair").claims]
    for at in range(0, len(claims), 50):
        ends = [settlement(each, Action.RETRY, suspect=True, keeps_rank=True) for each in claims[at : at + 50]]
        worker.take(0, settle=ends)
    while apis.ready("fair"):
        worker.take(1, "fair", may_recover=False)
    assert len(apis.recovered("fair")) == 161
    apis.operations.workers.pause_tenant("fair", "paused", by="ann")
    for _ in range(20):
        apis.clock.advance(7)
        if claims := worker.take(1, "fair").claims:
            break
    assert tenants(claims) == ["a"]
    assert not worker.take(1, "fair").claims


def test_a_queue_without_jobs_drops_only_its_own_tags(apis: ShardApis) -> None:
    for queue in ("fair", "other"):
        add(apis, "a", "b", "b", queue=queue)
        apis.worker().take(64, queue)
    kept = apis.client.zrange(apis.keys("turns"), 0, -1)
    assert len({entry[1:7] for entry in kept}) == 2
    # The queue whose hash is the lower one: what follows it is not its own.
    queue = min(("fair", "other"), key=queue_hash)
    apis.worker().take(1, queue)
    left = apis.client.zrange(apis.keys("turns"), 0, -1)
    assert left == [entry for entry in kept if entry[1:7] != queue_hash(queue)]


def test_jobs_of_a_tenant_keep_their_order_behind_many_of_a_paused_one(apis: ShardApis) -> None:
    add(apis, *["a"] * 3, "b")
    worker = apis.worker()
    served = worker.take(4, "fair").claims
    worker.take(0, settle=[settlement(claim, Action.ACKNOWLEDGE) for claim in served])
    add(apis, *["a"] * 3)
    of_a = list(apis.ready("fair"))
    add(apis, None, None, queue="default")
    add(apis, "c", "d", "e")
    apis.operations.workers.pause_tenant("fair", "paused", by="ann")
    add(apis, *["paused"] * 62, "f", "g")
    claims = [claim.raw_id for _ in range(3) for claim in worker.take(8, "fair", "default").claims]
    assert [raw_id for raw_id in claims if raw_id in of_a] == of_a
    assert len(claims) == 10
    assert not list(ConsistencyCheck(apis.shard).walk())


def test_a_claim_that_sets_jobs_aside_says_that_there_are_more(apis: ShardApis) -> None:
    add(apis, *["a"] * 3)
    worker = apis.worker()
    crashed = worker.take(3, "fair").claims
    worker.take(0, settle=[settlement(each, Action.RETRY, suspect=True, keeps_rank=True) for each in crashed])
    apis.clock.advance(SECOND)
    add(apis, *["a"] * 2)
    reply = worker.take(1, "fair", may_recover=False)
    assert (len(reply.claims), reply.has_more) == (1, True)
