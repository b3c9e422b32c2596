"""Heartbeats: they continue whatever one of them raises, and end with their service."""

import logging
import threading
import time
from collections.abc import Callable, Collection
from time import monotonic

import pytest

from django_delayq.clock import lease_time
from django_delayq.exceptions import StoreUnavailable
from django_delayq.job.job import Claim, Job
from django_delayq.processes.service import Service
from django_delayq.store.claims import HeartbeatReply
from django_delayq.worker.claiming.heartbeats import Heartbeats, Send
from django_delayq.worker.claiming.leases import HeldClaims
from tests.factories import claim_for

PATIENCE = 30.0


def claim(*, age: float = 0.0, hard_timeout_us: int | None = None) -> Claim:
    """Return a claim made `age` seconds ago, of a job with this hard limit."""
    raw_id = b"i" * 12 if hard_timeout_us is None else b"l" * 12
    job = Job(raw_id=raw_id, shard=0, task="shop.remind", queue="mail", hard_timeout_us=hard_timeout_us)
    return claim_for(job, sent_at=lease_time() - age, received_at=monotonic() - age)


def hold(
    *claims: Claim, lease_us: int = 30_000_000, send: Send = lambda *_: HeartbeatReply()
) -> tuple[HeldClaims, Heartbeats]:
    """Return held claims, and their heartbeats."""
    held = HeldClaims(lease_us=lease_us)
    held.add(claims)
    return held, Heartbeats(held, send, lease_us=lease_us)


def all_lost(leases: list[bytes], *_: object) -> HeartbeatReply:
    return HeartbeatReply(lost=frozenset(leases))


class FailingClaims:
    """Claims whose first heartbeat raises an error."""

    def __init__(self, error: Exception) -> None:
        self._errors = [error]
        self.beats: list[list[bytes]] = []
        self.succeeded = threading.Event()

    def heartbeat(self, leases: list[bytes], queues: Collection[str], progress: object) -> HeartbeatReply:
        self.beats.append(leases)
        if self._errors:
            raise self._errors.pop()
        self.succeeded.set()
        return HeartbeatReply()


@pytest.mark.parametrize("make", [lambda: RuntimeError("a bug"), lambda: StoreUnavailable("away")], ids=["bug", "away"])
def test_heartbeats_continue_after_one_fails(make: Callable[[], Exception]) -> None:
    claims, held = FailingClaims(make()), claim()
    _, heartbeats = hold(held, lease_us=30_000, send=claims.heartbeat)
    service = Service(heartbeats, name="Heartbeats")
    thread = threading.Thread(target=service.run, daemon=True)
    thread.start()
    try:
        assert claims.succeeded.wait(PATIENCE)
    finally:
        service.stop()
        thread.join(PATIENCE)
    assert not thread.is_alive()
    assert len(claims.beats) >= 2 and all(beat == [held.lease] for beat in claims.beats)


def test_a_lost_lease_is_no_longer_held() -> None:
    held = claim()
    leases, heartbeats = hold(held, send=all_lost)
    assert leases.trusts(held.lease)
    assert heartbeats.beat() == {held.lease}
    assert not leases.trusts(held.lease)
    assert heartbeats.beat() == frozenset()


def test_a_claim_beyond_its_hard_limit_gets_no_heartbeat() -> None:
    beats: list[list[bytes]] = []
    within, without, beyond = claim(age=5, hard_timeout_us=6_000_000_000), claim(age=5), claim(age=5, hard_timeout_us=1)
    for held in ([without, beyond], [within], [beyond]):
        leases, heartbeats = hold(*held, send=lambda leases, *_: beats.append(leases) or HeartbeatReply())
        assert all(leases.begin(claim.lease) for claim in held)
        heartbeats.beat()
    # Without another lease to renew, no request is sent.
    assert beats == [[without.lease], [within.lease]]


def test_a_claim_beyond_its_hard_limit_is_no_longer_trusted() -> None:
    # Both leases are nearly over; a heartbeat renews one of them.
    beyond, renewed = claim(age=28, hard_timeout_us=1_000_000), claim(age=28)
    leases, heartbeats = hold(beyond, renewed)
    # Their trust is over: a lease of 30 s is trusted for 27.
    assert not leases.begin(beyond.lease)
    leases._began[beyond.lease] = beyond.received_at
    assert heartbeats.beat() == frozenset()
    assert leases.trusts(renewed.lease)
    assert not leases.trusts(beyond.lease)


def test_a_lost_lease_is_not_trusted_while_its_loss_is_logged() -> None:
    lost = claim()
    leases, heartbeats = hold(lost, send=all_lost)
    trusted: list[bool] = []

    class Observer(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            trusted.append(leases.trusts(lost.lease))

    logger, observer = logging.getLogger("django_delayq"), Observer()
    logger.addHandler(observer)
    try:
        heartbeats.beat()
    finally:
        logger.removeHandler(observer)
    assert trusted == [False]


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="this system has no clock that counts suspended time")
def test_suspended_time_of_the_host_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    held = claim()
    leases, heartbeats = hold(held)
    clock = time.clock_gettime
    assert leases.trusts(held.lease)
    monkeypatch.setattr(time, "clock_gettime", lambda number: clock(number) + 100 * (number == time.CLOCK_BOOTTIME))
    assert not leases.trusts(held.lease)
    # A heartbeat renews the lease by the same clock.
    heartbeats.beat()
    assert leases.trusts(held.lease)


def test_the_hard_limit_counts_from_the_start_of_the_code() -> None:
    # Its process took 5 s to start, longer than the limit.
    starting = claim(age=5, hard_timeout_us=1_000_000)
    leases, heartbeats = hold(starting)
    until_before = leases._trusted_until[starting.lease]
    heartbeats.beat()
    assert leases._trusted_until[starting.lease] > until_before
    assert leases.begin(starting.lease)
    until_before = leases._trusted_until[starting.lease]
    heartbeats.beat()
    assert leases._trusted_until[starting.lease] > until_before


def test_a_claim_that_never_begins_is_not_renewed_forever() -> None:
    beats: list[list[bytes]] = []
    _, heartbeats = hold(claim(age=121), send=lambda leases, *_: beats.append(leases) or HeartbeatReply())
    heartbeats.beat()
    assert beats == []
