"""A job that a person claimed before it was due: however it comes back, it waits for its time again."""

from collections.abc import Callable

import pytest

from django_delayq.job.job import Claim
from django_delayq.job.outcome import Action
from django_delayq.job.progress import Progress
from django_delayq.store.maintenance.consistency_check import ConsistencyCheck
from django_delayq.store.promotion import Reclaim
from tests.shard_apis import HOUR, MS, SECOND, START, OneWorker, ShardApis, one_more

DUE = START + HOUR

#: Ends a claim of this worker; the job runs again.
ComesBack = Callable[[ShardApis, OneWorker, Claim], object]


def unconfirmed(apis: ShardApis, worker: OneWorker, claim: Claim) -> None:
    apis.expire_leases()


def counted(apis: ShardApis, worker: OneWorker, claim: Claim) -> None:
    assert not worker.api.heartbeat([claim.lease], (), {claim.lease: Progress(0.5)}).lost
    [item] = apis.promotion.read_expired_leases(apis.expired_leases())
    assert not item.unconfirmed
    attempts = one_more(item.attempts, suspect=True)
    assert apis.promotion.reclaim([Reclaim(lease=item.lease, attempts=attempts, queue=item.queue)]) == [True]
    apis.promote()


def released(apis: ShardApis, worker: OneWorker, claim: Claim) -> None:
    assert not worker.settle(claim, Action.RELEASE).lost


def interrupted(apis: ShardApis, worker: OneWorker, claim: Claim) -> None:
    assert not worker.settle(claim, Action.RETRY, keeps_rank=True).lost


def retried(apis: ShardApis, worker: OneWorker, claim: Claim) -> None:
    assert not worker.settle(claim, Action.RETRY, delay=2 * SECOND).lost


WAYS = (unconfirmed, counted, released, interrupted, retried)


def claimed_ahead(apis: ShardApis, **options: int) -> tuple[OneWorker, Claim]:
    """Claim a job that is due in an hour."""
    raw_id, worker = apis.add(due=DUE, **options), apis.worker()
    claim = worker.api.claim_one(raw_id, worker_name="shell/1")
    assert claim is not None
    return worker, claim


@pytest.mark.parametrize("comes_back", WAYS)
def test_it_waits_for_its_time(apis: ShardApis, comes_back: ComesBack) -> None:
    worker, claim = claimed_ahead(apis)
    comes_back(apis, worker, claim)
    assert apis.where(claim.raw_id) == ["scheduled:default"]
    assert apis.scheduled() == {claim.raw_id: DUE}
    assert apis.inspection.find(claim.raw_id).due_us == DUE
    assert list(ConsistencyCheck(apis.shard).walk()) == []
    apis.clock.advance(DUE - 1 - apis.clock.now_us)
    apis.promote()
    assert apis.worker().take().claims == []
    apis.clock.advance(1)
    apis.promote()
    assert [again.raw_id for again in apis.worker().take().claims] == [claim.raw_id]


@pytest.mark.parametrize("comes_back", WAYS[:4])
def test_it_is_ready_at_its_place_if_its_time_passed_meanwhile(apis: ShardApis, comes_back: ComesBack) -> None:
    """Not before jobs that were due earlier, although it was claimed before they were."""
    worker, claim = claimed_ahead(apis)
    apis.add(due=DUE - MS)
    apis.add(due=DUE + MS)
    apis.clock.advance(HOUR - SECOND)
    # Its lease has run out, but no dispatcher took it back.
    worker.api.heartbeat([claim.lease])
    apis.clock.advance(2 * SECOND)
    apis.promote()
    comes_back(apis, worker, claim)
    entries = {**apis.ready(), **apis.recovered()}
    assert sorted(entries, key=entries.__getitem__).index(claim.raw_id) == 1
    assert apis.inspection.find(claim.raw_id).due_us == DUE // MS * MS


def test_a_retry_after_its_time_keeps_its_delay(apis: ShardApis) -> None:
    worker, claim = claimed_ahead(apis)
    worker.settle(claim, Action.RETRY, delay=2 * HOUR)
    assert apis.scheduled() == {claim.raw_id: START + 2 * HOUR}


def test_an_earlier_due_time_wakes_the_dispatcher(apis: ShardApis) -> None:
    worker, claim = claimed_ahead(apis)
    apis.client.set(apis.keys("next_promotion"), DUE + 1)
    apis.client.delete(apis.keys("notify_dispatcher"))
    released(apis, worker, claim)
    assert apis.notifications(apis.keys("notify_dispatcher")) == [1]


def test_its_due_time_stays_beside_a_stop_and_progress(apis: ShardApis) -> None:
    worker, claim = claimed_ahead(apis)
    for _ in range(2):
        assert apis.operations.stop(claim.raw_id, grace_us=SECOND)
        assert worker.api.heartbeat([claim.lease], (), {claim.lease: Progress(0.5, "half")}).stops == {
            claim.lease: SECOND
        }
    row = apis.inspection.find(claim.raw_id)
    assert (row.stops, row.progress, row.claimed_us, row.due_us) == (True, Progress(0.5, "half"), START, DUE // MS * MS)
    assert apis.client.hget(apis.keys("claim_records"), claim.raw_id)[41:49] == DUE.to_bytes(8)
    assert worker.settle(claim, Action.RELEASE).stopped == {claim.lease}
    assert not worker.settle(claim, Action.CANCEL).lost
    assert apis.traces(claim.raw_id) == []


def test_a_job_that_was_due_is_claimed_without_a_due_time(apis: ShardApis) -> None:
    """Also one that nobody has promoted yet."""
    for raw_id in (apis.add(), apis.add(delay=SECOND)):
        apis.clock.advance(SECOND)
        worker = apis.worker()
        claim = worker.api.claim_one(raw_id, worker_name="shell/1")
        assert claim is not None
        assert len(apis.client.hget(apis.keys("claim_records"), raw_id)) == 33
        released(apis, worker, claim)
        assert apis.where(raw_id) == ["ready:default"]


def test_the_due_time_of_a_lost_claim_record_is_lost(apis: ShardApis) -> None:
    """Then the job is ready at once, as after any loss of its place."""
    _, claim = claimed_ahead(apis)
    apis.client.delete(apis.keys("claim_records"))
    unconfirmed(apis, apis.worker(), claim)
    assert apis.where(claim.raw_id) == ["ready:default"]
