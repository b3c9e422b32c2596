"""Outages: afterwards every lease is past its end, and living workers get time to renew theirs."""

from collections.abc import Callable

import pytest

from tests.shard_apis import HOUR, SECOND, START, ShardApis

LEASE = 30 * SECOND


def hold(apis: ShardApis, count: int = 1) -> list[bytes]:
    """Claim so many jobs while a dispatcher promotes, and return their leases."""
    apis.enqueue(*[apis.draft(number) for number in range(count)])
    apis.promote()
    return [claim.lease for _ in range(count) for claim in apis.worker().take().claims]


def pass_with_promotions(apis: ShardApis, us: int) -> list[bytes]:
    """Let time pass with a promotion at each sweep, and return the expired leases."""
    named: list[bytes] = []
    end = apis.clock.now_us + us
    while apis.clock.now_us < end:
        apis.clock.advance(min(5 * SECOND, end - apis.clock.now_us))
        named += apis.promote().expired_leases
    return named


def first_expired(apis: ShardApis, *, every: int, times: int) -> list[bytes]:
    """Promote every so many µs, so many times at most, and return the first expired leases."""
    for _ in range(times):
        apis.clock.advance(every)
        if expired := apis.promote().expired_leases:
            return expired
    return []


@pytest.mark.parametrize("away", [LEASE, 2 * LEASE, 24 * HOUR])
def test_no_lease_expires_before_its_worker_had_time_to_renew_it(apis: ShardApis, away: int) -> None:
    worker = apis.worker()
    apis.enqueue(*[apis.draft(number) for number in range(3_000)])
    apis.promote()
    held = [claim.lease for _ in range(60) for claim in worker.take(50).claims]
    assert len(held) == 3_000
    apis.clock.advance(away)
    # The dispatcher reconnects first.
    assert apis.promote().expired_leases == []
    assert pass_with_promotions(apis, 14 * SECOND) == []
    assert worker.api.heartbeat(held).lost == frozenset()
    assert pass_with_promotions(apis, 29 * SECOND) == []


def test_a_lease_that_is_not_renewed_after_an_outage_expires_15_seconds_later(apis: ShardApis) -> None:
    held = hold(apis, 3)
    apis.clock.advance(2 * LEASE)
    first = apis.promote()
    assert (first.expired_leases, first.sleep_us) == ([], 5 * SECOND)
    apis.clock.advance(11 * SECOND)
    # No sleep extends beyond the time from which leases expire again.
    assert apis.promote().sleep_us == 4 * SECOND
    apis.clock.advance(4 * SECOND - 1)
    assert apis.promote().expired_leases == []
    apis.clock.advance(1)
    assert sorted(apis.promote().expired_leases) == sorted(held)


@pytest.mark.parametrize("late", [0, 10 * SECOND])
def test_a_promotion_that_is_a_little_late_is_no_outage(apis: ShardApis, late: int) -> None:
    held = hold(apis)
    pass_with_promotions(apis, LEASE - 5 * SECOND)
    apis.clock.advance(5 * SECOND + late)
    assert apis.promote().expired_leases == held


def test_if_promotions_are_always_late_a_lease_is_spared_once(apis: ShardApis) -> None:
    """As with `run_worker --drain` every minute, or without a dispatcher if the only worker is too busy."""
    held = hold(apis)
    assert first_expired(apis, every=60 * SECOND, times=3) == held
    assert apis.clock.now_us == START + 120 * SECOND


def test_late_promotions_do_not_extend_the_time_in_which_leases_are_spared(apis: ShardApis) -> None:
    held = hold(apis)
    apis.clock.advance(60 * SECOND)
    assert apis.promote().expired_leases == []
    assert first_expired(apis, every=16 * SECOND, times=2) == held


def test_a_clock_set_back_ends_the_time_in_which_leases_are_spared(apis: ShardApis) -> None:
    apis.promote()
    apis.clock.advance(HOUR)
    apis.promote()
    apis.clock.advance(-HOUR)
    held = hold(apis)
    assert set(pass_with_promotions(apis, LEASE)) == set(held)


@pytest.mark.parametrize("how", ["never", "flushed"])
def test_without_an_earlier_promotion_there_was_no_outage(apis: ShardApis, how: str) -> None:
    if how == "flushed":
        apis.promote()
        apis.client.flushdb()
    apis.add()
    (claim,) = apis.worker().take().claims
    apis.clock.advance(LEASE)
    assert apis.promote().expired_leases == [claim.lease]


@pytest.mark.parametrize("lease", [6, 7, 10, 12, 15, 30, 3_600])
def test_every_outage_longer_than_a_lease_is_seen(make_apis: Callable[..., ShardApis], lease: int) -> None:
    apis = make_apis(LEASE=lease)
    hold(apis)
    apis.clock.advance(lease * SECOND + 1)
    assert apis.promote().expired_leases == []


@pytest.mark.parametrize("damage", [b"", b"x", b"nan", b"inf", b"-inf", b"9" * 40])
def test_a_manually_edited_time_stops_nothing(apis: ShardApis, damage: bytes) -> None:
    held = hold(apis)
    for noun in ("next_promotion", "no_reclaim_before"):
        apis.client.set(apis.keys(noun), damage)
    pass_with_promotions(apis, 15 * SECOND)
    assert set(pass_with_promotions(apis, LEASE)) == set(held)
