"""Outages: after one every lease is past its end, and living workers get time to renew theirs before any lapses."""

from collections.abc import Callable

import pytest

from tests.shard_apis import HOUR, SECOND, START, Doors

LEASE = 30 * SECOND


def hold(doors: Doors, count: int = 1) -> list[bytes]:
    """Claim that many jobs where somebody promotes, and return their leases."""
    doors.enqueue(*[doors.draft(number) for number in range(count)])
    doors.promote()
    return [claim.lease for _ in range(count) for claim in doors.worker().take().claims]


def pass_with_promotions(doors: Doors, us: int) -> list[bytes]:
    """Let time pass with a promotion at each sweep, and return the leases named on the way."""
    named: list[bytes] = []
    end = doors.clock.now_us + us
    while doors.clock.now_us < end:
        doors.clock.advance(min(5 * SECOND, end - doors.clock.now_us))
        named += doors.promote().expired_leases
    return named


@pytest.mark.parametrize("away", [LEASE, 2 * LEASE, 24 * HOUR])
def test_no_lease_lapses_before_its_worker_had_time_to_renew_it(doors: Doors, away: int) -> None:
    worker = doors.worker()
    doors.enqueue(*[doors.draft(number) for number in range(3_000)])
    doors.promote()
    held = [claim.lease for _ in range(60) for claim in worker.take(50).claims]
    assert len(held) == 3_000
    doors.clock.advance(away)
    # The dispatcher is back first.
    assert doors.promote().expired_leases == []
    assert pass_with_promotions(doors, 14 * SECOND) == []
    assert worker.door.heartbeat(held) == frozenset()
    assert pass_with_promotions(doors, 29 * SECOND) == []


def test_a_lease_that_nobody_renews_after_an_outage_lapses_15_seconds_later(doors: Doors) -> None:
    held = hold(doors, 3)
    doors.clock.advance(2 * LEASE)
    first = doors.promote()
    assert (first.expired_leases, first.sleep_us) == ([], 5 * SECOND)
    doors.clock.advance(11 * SECOND)
    # No sleep goes beyond the moment from which leases lapse again.
    assert doors.promote().sleep_us == 4 * SECOND
    doors.clock.advance(4 * SECOND - 1)
    assert doors.promote().expired_leases == []
    doors.clock.advance(1)
    assert sorted(doors.promote().expired_leases) == sorted(held)


@pytest.mark.parametrize("late", [0, 10 * SECOND])
def test_a_promotion_that_is_a_little_late_is_no_outage(doors: Doors, late: int) -> None:
    held = hold(doors)
    pass_with_promotions(doors, LEASE - 5 * SECOND)
    doors.clock.advance(5 * SECOND + late)
    assert doors.promote().expired_leases == held


def test_where_promotions_are_always_late_a_lease_is_spared_once(doors: Doors) -> None:
    """As by `run_worker --drain` every minute, or where no dispatcher runs and the only worker is too busy."""
    held = hold(doors)
    for _ in range(3):
        doors.clock.advance(60 * SECOND)
        told = doors.promote().expired_leases
        if told:
            break
    assert told == held
    assert doors.clock.now_us == START + 120 * SECOND


def test_promotions_that_come_late_within_the_respite_do_not_lengthen_it(doors: Doors) -> None:
    held = hold(doors)
    doors.clock.advance(60 * SECOND)
    assert doors.promote().expired_leases == []
    for _ in range(2):
        doors.clock.advance(16 * SECOND)
        told = doors.promote().expired_leases
        if told:
            break
    assert told == held


def test_a_clock_set_back_ends_the_respite(doors: Doors) -> None:
    doors.promote()
    doors.clock.advance(HOUR)
    doors.promote()
    doors.clock.advance(-HOUR)
    held = hold(doors)
    assert set(pass_with_promotions(doors, LEASE)) == set(held)


@pytest.mark.parametrize("how", ["never", "flushed"])
def test_where_nobody_promoted_before_there_was_no_outage(doors: Doors, how: str) -> None:
    if how == "flushed":
        doors.promote()
        doors.client.flushdb()
    doors.add()
    (claim,) = doors.worker().take().claims
    doors.clock.advance(LEASE)
    assert doors.promote().expired_leases == [claim.lease]


@pytest.mark.parametrize("lease", [6, 7, 10, 12, 15, 30, 3_600])
def test_every_outage_longer_than_a_lease_is_seen(make_doors: Callable[..., Doors], lease: int) -> None:
    doors = make_doors(LEASE=lease)
    hold(doors)
    doors.clock.advance(lease * SECOND + 1)
    assert doors.promote().expired_leases == []


@pytest.mark.parametrize("damage", [b"", b"x", b"nan", b"inf", b"-inf", b"9" * 40])
def test_a_moment_written_by_hand_stops_nothing(doors: Doors, damage: bytes) -> None:
    held = hold(doors)
    for noun in ("next_promotion", "no_lapse_before"):
        doors.client.set(doors.keys(noun), damage)
    pass_with_promotions(doors, 15 * SECOND)
    assert set(pass_with_promotions(doors, LEASE)) == set(held)
