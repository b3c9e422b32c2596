"""Heartbeat: pushes the leases a worker still holds, and tells it which are lost."""

from django_delayq.job.outcome import Action
from tests.shard_apis import HOUR, SECOND, START, Doors

LEASE = 30 * SECOND


def test_heartbeat_pushes_the_end_to_a_whole_lease_from_now(doors: Doors) -> None:
    raw_id = doors.add()
    worker = doors.worker()
    (claim,) = worker.take().claims
    doors.clock.advance(10 * SECOND + 1)
    assert worker.door.heartbeat([claim.lease]) == frozenset()
    assert doors.scores(doors.keys("leases")) == {raw_id: START + 10 * SECOND + 1 + LEASE}


def test_lease_kept_alive_never_lapses(doors: Doors) -> None:
    doors.add()
    worker = doors.worker()
    (claim,) = worker.take().claims
    for _ in range(10):
        doors.clock.advance(LEASE - 1)
        assert doors.promote().expired_leases == []
        worker.door.heartbeat([claim.lease])
    assert not worker.settle(claim, Action.ACKNOWLEDGE).lost


def test_late_heartbeat_revives_a_lease_that_nobody_took_back(doors: Doors) -> None:
    doors.add()
    worker = doors.worker()
    (claim,) = worker.take().claims
    doors.clock.advance(HOUR)
    assert worker.door.heartbeat([claim.lease]) == frozenset()
    assert doors.promote().expired_leases == []


def test_lost_lease_is_told_and_not_revived(doors: Doors) -> None:
    raw_id = doors.add()
    worker = doors.worker()
    (claim,) = worker.take().claims
    doors.lapse()
    assert worker.door.heartbeat([claim.lease]) == {claim.lease}
    assert doors.where(raw_id) == ["ready:default"]
    doors.worker().take()
    assert worker.door.heartbeat([claim.lease]) == {claim.lease}
    assert doors.scores(doors.keys("leases")) == {raw_id: doors.clock.now_us + LEASE}


def test_heartbeat_tells_lost_and_held_leases_apart(doors: Doors) -> None:
    doors.enqueue(*[doors.draft(number) for number in range(4)])
    worker = doors.worker()
    claims = worker.take(4).claims
    worker.settle(claims[1], Action.ACKNOWLEDGE)
    worker.settle(claims[2], Action.RELEASE)
    doors.clock.advance(SECOND)
    lost = worker.door.heartbeat([claim.lease for claim in claims])
    assert lost == {claims[1].lease, claims[2].lease}
    assert set(doors.scores(doors.keys("leases")).values()) == {START + SECOND + LEASE}


def test_heartbeat_leaves_other_leases_alone(doors: Doors) -> None:
    doors.add()
    other = doors.worker().take().claims[0]
    doors.add()
    worker = doors.worker()
    (claim,) = worker.take().claims
    doors.clock.advance(SECOND)
    worker.door.heartbeat([claim.lease])
    assert doors.scores(doors.keys("leases"))[other.raw_id] == START + LEASE


def test_more_leases_than_one_script_takes_are_all_pushed(doors: Doors) -> None:
    for _ in range(3):
        doors.enqueue(*[doors.draft() for _ in range(400)])
    worker = doors.worker()
    leases = [claim.lease for _ in range(24) for claim in worker.take(50).claims]
    assert len(leases) == 1_200
    gone = leases[::100]
    doors.client.zrem(doors.keys("leases"), *gone)
    doors.clock.advance(SECOND)
    assert worker.door.heartbeat(leases) == set(gone)
    assert set(doors.scores(doors.keys("leases")).values()) == {START + SECOND + LEASE}


def test_heartbeat_is_a_sign_of_life(doors: Doors) -> None:
    doors.add()
    worker = doors.worker()
    (claim,) = worker.take().claims
    doors.clock.advance(HOUR)
    worker.door.heartbeat([claim.lease])
    assert doors.client.zscore(doors.keys("workers"), worker.code) == START + HOUR


def test_full_memory_does_not_stop_heartbeats(own_doors: Doors) -> None:
    raw_id = own_doors.add()
    worker = own_doors.worker()
    (claim,) = worker.take().claims
    own_doors.fill_memory()
    own_doors.clock.advance(SECOND)
    assert worker.door.heartbeat([claim.lease]) == frozenset()
    assert own_doors.scores(own_doors.keys("leases")) == {raw_id: START + SECOND + LEASE}


def test_flushed_scripts_are_loaded_again(doors: Doors) -> None:
    doors.add()
    worker = doors.worker()
    (claim,) = worker.take().claims
    worker.door.heartbeat([claim.lease])
    doors.client.script_flush()
    assert worker.door.heartbeat([claim.lease]) == frozenset()


def test_a_lease_made_while_the_clock_was_an_hour_ahead_is_mended_by_the_next_heartbeat(doors: Doors) -> None:
    doors.clock.advance(HOUR)
    raw_id = doors.add()
    worker = doors.worker()
    (claim,) = worker.take().claims
    doors.clock.advance(-HOUR)
    assert doors.scores(doors.keys("leases")) == {raw_id: START + HOUR + LEASE}
    worker.door.heartbeat([claim.lease])
    assert doors.scores(doors.keys("leases")) == {raw_id: START + LEASE}
