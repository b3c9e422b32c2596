"""Heartbeat: pushes the leases a worker still holds, and tells it which are lost."""

from django_delayq.job.outcome import Action
from tests.shard_apis import HOUR, SECOND, START, ShardApis

LEASE = 30 * SECOND


def test_heartbeat_pushes_the_end_to_a_whole_lease_from_now(apis: ShardApis) -> None:
    raw_id = apis.add()
    worker = apis.worker()
    (claim,) = worker.take().claims
    apis.clock.advance(10 * SECOND + 1)
    assert worker.door.heartbeat([claim.lease]) == frozenset()
    assert apis.scores(apis.keys("leases")) == {raw_id: START + 10 * SECOND + 1 + LEASE}


def test_lease_kept_alive_never_lapses(apis: ShardApis) -> None:
    apis.add()
    worker = apis.worker()
    (claim,) = worker.take().claims
    for _ in range(10):
        apis.clock.advance(LEASE - 1)
        assert apis.promote().expired_leases == []
        worker.door.heartbeat([claim.lease])
    assert not worker.settle(claim, Action.ACKNOWLEDGE).lost


def test_late_heartbeat_revives_a_lease_that_nobody_took_back(apis: ShardApis) -> None:
    apis.add()
    worker = apis.worker()
    (claim,) = worker.take().claims
    apis.clock.advance(HOUR)
    assert worker.door.heartbeat([claim.lease]) == frozenset()
    assert apis.promote().expired_leases == []


def test_lost_lease_is_told_and_not_revived(apis: ShardApis) -> None:
    raw_id = apis.add()
    worker = apis.worker()
    (claim,) = worker.take().claims
    apis.lapse()
    assert worker.door.heartbeat([claim.lease]) == {claim.lease}
    assert apis.where(raw_id) == ["ready:default"]
    apis.worker().take()
    assert worker.door.heartbeat([claim.lease]) == {claim.lease}
    assert apis.scores(apis.keys("leases")) == {raw_id: apis.clock.now_us + LEASE}


def test_heartbeat_tells_lost_and_held_leases_apart(apis: ShardApis) -> None:
    apis.enqueue(*[apis.draft(number) for number in range(4)])
    worker = apis.worker()
    claims = worker.take(4).claims
    worker.settle(claims[1], Action.ACKNOWLEDGE)
    worker.settle(claims[2], Action.RELEASE)
    apis.clock.advance(SECOND)
    lost = worker.door.heartbeat([claim.lease for claim in claims])
    assert lost == {claims[1].lease, claims[2].lease}
    assert set(apis.scores(apis.keys("leases")).values()) == {START + SECOND + LEASE}


def test_heartbeat_leaves_other_leases_alone(apis: ShardApis) -> None:
    apis.add()
    other = apis.worker().take().claims[0]
    apis.add()
    worker = apis.worker()
    (claim,) = worker.take().claims
    apis.clock.advance(SECOND)
    worker.door.heartbeat([claim.lease])
    assert apis.scores(apis.keys("leases"))[other.raw_id] == START + LEASE


def test_more_leases_than_one_script_takes_are_all_pushed(apis: ShardApis) -> None:
    for _ in range(3):
        apis.enqueue(*[apis.draft() for _ in range(400)])
    worker = apis.worker()
    leases = [claim.lease for _ in range(24) for claim in worker.take(50).claims]
    assert len(leases) == 1_200
    gone = leases[::100]
    apis.client.zrem(apis.keys("leases"), *gone)
    apis.clock.advance(SECOND)
    assert worker.door.heartbeat(leases) == set(gone)
    assert set(apis.scores(apis.keys("leases")).values()) == {START + SECOND + LEASE}


def test_heartbeat_is_a_sign_of_life(apis: ShardApis) -> None:
    apis.add()
    worker = apis.worker()
    (claim,) = worker.take().claims
    apis.clock.advance(HOUR)
    worker.door.heartbeat([claim.lease])
    assert apis.client.zscore(apis.keys("workers"), worker.code) == START + HOUR


def test_full_memory_does_not_stop_heartbeats(own_doors: ShardApis) -> None:
    raw_id = own_doors.add()
    worker = own_doors.worker()
    (claim,) = worker.take().claims
    own_doors.fill_memory()
    own_doors.clock.advance(SECOND)
    assert worker.door.heartbeat([claim.lease]) == frozenset()
    assert own_doors.scores(own_doors.keys("leases")) == {raw_id: START + SECOND + LEASE}


def test_flushed_scripts_are_loaded_again(apis: ShardApis) -> None:
    apis.add()
    worker = apis.worker()
    (claim,) = worker.take().claims
    worker.door.heartbeat([claim.lease])
    apis.client.script_flush()
    assert worker.door.heartbeat([claim.lease]) == frozenset()


def test_a_lease_made_while_the_clock_was_an_hour_ahead_is_mended_by_the_next_heartbeat(apis: ShardApis) -> None:
    apis.clock.advance(HOUR)
    raw_id = apis.add()
    worker = apis.worker()
    (claim,) = worker.take().claims
    apis.clock.advance(-HOUR)
    assert apis.scores(apis.keys("leases")) == {raw_id: START + HOUR + LEASE}
    worker.door.heartbeat([claim.lease])
    assert apis.scores(apis.keys("leases")) == {raw_id: START + LEASE}
