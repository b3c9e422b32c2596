"""Heartbeat: extends the leases that a worker still holds, and returns those that are lost."""

from django_delayq.job.outcome import Action
from django_delayq.job.progress import Progress
from tests.shard_apis import HOUR, SECOND, START, ShardApis

LEASE = 30 * SECOND


def test_heartbeat_extends_the_lease_to_its_full_length_from_now(apis: ShardApis) -> None:
    raw_id = apis.add()
    worker = apis.worker()
    (claim,) = worker.take().claims
    apis.clock.advance(10 * SECOND + 1)
    assert worker.api.heartbeat([claim.lease]).lost == frozenset()
    assert apis.scores(apis.keys("leases")) == {raw_id: START + 10 * SECOND + 1 + LEASE}


def test_a_renewed_lease_never_expires(apis: ShardApis) -> None:
    apis.add()
    worker = apis.worker()
    (claim,) = worker.take().claims
    for _ in range(10):
        apis.clock.advance(LEASE - 1)
        assert apis.promote().expired_leases == []
        worker.api.heartbeat([claim.lease])
    assert not worker.settle(claim, Action.ACKNOWLEDGE).lost


def test_late_heartbeat_revives_a_lease_that_was_not_reclaimed(apis: ShardApis) -> None:
    apis.add()
    worker = apis.worker()
    (claim,) = worker.take().claims
    apis.clock.advance(HOUR)
    assert worker.api.heartbeat([claim.lease]).lost == frozenset()
    assert apis.promote().expired_leases == []


def test_lost_lease_is_reported_and_not_revived(apis: ShardApis) -> None:
    raw_id = apis.add()
    worker = apis.worker()
    (claim,) = worker.take().claims
    apis.expire_leases()
    assert worker.api.heartbeat([claim.lease]).lost == {claim.lease}
    assert apis.where(raw_id) == ["ready:default"]
    apis.worker().take()
    assert worker.api.heartbeat([claim.lease]).lost == {claim.lease}
    assert apis.scores(apis.keys("leases")) == {raw_id: apis.clock.now_us + LEASE}


def test_heartbeat_distinguishes_lost_and_held_leases(apis: ShardApis) -> None:
    apis.enqueue(*[apis.draft(number) for number in range(4)])
    worker = apis.worker()
    claims = worker.take(4).claims
    worker.settle(claims[1], Action.ACKNOWLEDGE)
    worker.settle(claims[2], Action.RELEASE)
    apis.clock.advance(SECOND)
    lost = worker.api.heartbeat([claim.lease for claim in claims]).lost
    assert lost == {claims[1].lease, claims[2].lease}
    assert set(apis.scores(apis.keys("leases")).values()) == {START + SECOND + LEASE}


def test_heartbeat_leaves_other_leases_alone(apis: ShardApis) -> None:
    apis.add()
    other = apis.worker().take().claims[0]
    apis.add()
    worker = apis.worker()
    (claim,) = worker.take().claims
    apis.clock.advance(SECOND)
    worker.api.heartbeat([claim.lease])
    assert apis.scores(apis.keys("leases"))[other.raw_id] == START + LEASE


def test_more_leases_than_one_script_takes_are_all_extended(apis: ShardApis) -> None:
    for _ in range(3):
        apis.enqueue(*[apis.draft() for _ in range(400)])
    worker = apis.worker()
    leases = [claim.lease for _ in range(24) for claim in worker.take(50).claims]
    assert len(leases) == 1_200
    gone = leases[::100]
    apis.client.zrem(apis.keys("leases"), *gone)
    apis.clock.advance(SECOND)
    assert worker.api.heartbeat(leases).lost == set(gone)
    assert set(apis.scores(apis.keys("leases")).values()) == {START + SECOND + LEASE}


def test_heartbeat_updates_when_the_worker_was_last_seen(apis: ShardApis) -> None:
    apis.add()
    worker = apis.worker()
    (claim,) = worker.take().claims
    apis.clock.advance(HOUR)
    worker.api.heartbeat([claim.lease])
    assert apis.client.zscore(apis.keys("workers"), worker.code) == START + HOUR


def test_full_memory_does_not_stop_heartbeats(own_apis: ShardApis) -> None:
    raw_id = own_apis.add()
    worker = own_apis.worker()
    (claim,) = worker.take().claims
    own_apis.fill_memory()
    own_apis.clock.advance(SECOND)
    assert worker.api.heartbeat([claim.lease]).lost == frozenset()
    assert own_apis.scores(own_apis.keys("leases")) == {raw_id: START + SECOND + LEASE}


def test_flushed_scripts_are_loaded_again(apis: ShardApis) -> None:
    apis.add()
    worker = apis.worker()
    (claim,) = worker.take().claims
    worker.api.heartbeat([claim.lease])
    apis.client.script_flush()
    assert worker.api.heartbeat([claim.lease]).lost == frozenset()


def test_a_lease_made_while_the_clock_was_an_hour_ahead_is_corrected_by_the_next_heartbeat(apis: ShardApis) -> None:
    apis.clock.advance(HOUR)
    raw_id = apis.add()
    worker = apis.worker()
    (claim,) = worker.take().claims
    apis.clock.advance(-HOUR)
    assert apis.scores(apis.keys("leases")) == {raw_id: START + HOUR + LEASE}
    worker.api.heartbeat([claim.lease])
    assert apis.scores(apis.keys("leases")) == {raw_id: START + LEASE}


def test_progress_is_stored_until_the_claim_ends(apis: ShardApis) -> None:
    raw_id = apis.add()
    worker = apis.worker()
    (claim,) = worker.take().claims
    for progress in (Progress(0.25, "2,000 of 8,000"), Progress(1.0)):
        assert not worker.api.heartbeat([claim.lease], (), {claim.lease: progress}).lost
        assert apis.inspection.find(raw_id).progress == progress
    worker.settle(claim, Action.RELEASE)
    assert apis.inspection.find(raw_id).progress is None
    worker.take()
    assert apis.inspection.find(raw_id).progress is None


def test_a_lost_claim_stores_no_progress(apis: ShardApis) -> None:
    raw_id = apis.add()
    worker = apis.worker()
    (claim,) = worker.take().claims
    apis.expire_leases()
    apis.worker().take()
    assert worker.api.heartbeat([claim.lease], (), {claim.lease: Progress(0.5)}).lost == {claim.lease}
    assert apis.inspection.find(raw_id).progress is None


def test_progress_of_many_claims_is_stored_with_their_queues(apis: ShardApis) -> None:
    ids = [apis.add(queue="a:b/ü") for _ in range(3)]
    worker = apis.worker()
    claims = worker.take(3, "a:b/ü").claims
    reports = {claim.lease: Progress(number / 4) for number, claim in enumerate(claims)}
    apis.clock.advance(SECOND)
    worker.api.heartbeat([claim.lease for claim in claims], {"a:b/ü", "unknown"}, reports)
    assert [apis.inspection.find(raw_id).progress for raw_id in ids] == [Progress(0.0), Progress(0.25), Progress(0.5)]


def test_a_damaged_claim_record_reads_as_no_progress(apis: ShardApis) -> None:
    raw_id = apis.add()
    worker = apis.worker()
    (claim,) = worker.take().claims
    record = apis.client.hget(apis.keys("claim_records"), raw_id)
    for stored in (record + b"{", record[:20], record[:32] + b"\1", record + b'{"fraction":7}', b"x"):
        apis.client.hset(apis.keys("claim_records"), raw_id, stored)
        assert apis.inspection.find(raw_id).progress is None
        assert worker.api.heartbeat([claim.lease], (), {claim.lease: Progress(0.5)}).stops == {}
