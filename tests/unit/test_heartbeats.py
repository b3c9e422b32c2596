"""Heartbeats: they go on whatever one beat raises, and end with their service."""

import logging
import threading
import time
from collections.abc import Callable
from time import monotonic

import pytest

from django_delayq.clock import lease_time
from django_delayq.exceptions import StoreUnavailable
from django_delayq.job.job import Claim, Job
from django_delayq.processes.service import Service
from django_delayq.worker.leases import Leases
from tests.factories import claim_for

PATIENCE = 30.0


def claim(*, age: float = 0.0, hard_timeout_us: int | None = None) -> Claim:
    """Return a claim made so many seconds ago, of a job with this hard limit."""
    raw_id = b"i" * 12 if hard_timeout_us is None else b"l" * 12
    job = Job(raw_id=raw_id, shard=0, task="shop.remind", queue="mail", hard_timeout_us=hard_timeout_us)
    return claim_for(job, sent_at=lease_time() - age, received_at=monotonic() - age)


class Door:
    """Answer heartbeats; the first one by raising."""

    def __init__(self, error: Exception) -> None:
        self._errors = [error]
        self.asked: list[list[bytes]] = []
        self.answered = threading.Event()

    def heartbeat(self, leases: list[bytes], queues: set[str]) -> frozenset[bytes]:
        self.asked.append(leases)
        if self._errors:
            raise self._errors.pop()
        self.answered.set()
        return frozenset()


@pytest.mark.parametrize("make", [lambda: RuntimeError("a bug"), lambda: StoreUnavailable("away")], ids=["bug", "away"])
def test_one_that_fails_is_followed_by_others(make: Callable[[], Exception]) -> None:
    door, held = Door(make()), claim()
    leases = Leases(door.heartbeat, lease_us=30_000)
    leases.add([held])
    service = Service(leases, name="Heartbeats")
    thread = threading.Thread(target=service.run, daemon=True)
    thread.start()
    try:
        assert door.answered.wait(PATIENCE)
    finally:
        service.stop()
        thread.join(PATIENCE)
    assert not thread.is_alive()
    assert len(door.asked) >= 2 and all(asked == [held.lease] for asked in door.asked)


def test_a_lost_lease_is_held_no_longer() -> None:
    held = claim()
    leases = Leases(lambda leases, _: frozenset(leases), lease_us=30_000_000)
    leases.add([held])
    assert leases.trusts(held.lease)
    assert leases.beat() == {held.lease}
    assert not leases.trusts(held.lease)
    assert leases.beat() == frozenset()


def test_a_claim_beyond_its_hard_limit_is_beaten_no_more() -> None:
    asked: list[list[bytes]] = []
    within, without, beyond = claim(age=5, hard_timeout_us=6_000_000_000), claim(age=5), claim(age=5, hard_timeout_us=1)
    for held in ([without, beyond], [within], [beyond]):
        leases = Leases(lambda leases, _: asked.append(leases) or frozenset(), lease_us=30_000_000)
        leases.add(held)
        assert all(leases.begin(claim.lease) for claim in held)
        leases.beat()
    # With nothing else to push on, Redis is not even asked.
    assert asked == [[without.lease], [within.lease]]


def test_the_trust_in_a_claim_beyond_its_hard_limit_ends() -> None:
    # Both leases are nearly over; a heartbeat makes one of them new.
    beyond, renewed = claim(age=28, hard_timeout_us=1_000_000), claim(age=28)
    leases = Leases(lambda *_: frozenset(), lease_us=30_000_000)
    leases.add([beyond, renewed])
    # Their trust is over: a lease of 30 s is trusted for 27.
    assert not leases.begin(beyond.lease)
    leases._began[beyond.lease] = beyond.received_at
    assert leases.beat() == frozenset()
    assert leases.trusts(renewed.lease)
    assert not leases.trusts(beyond.lease)


def test_a_lease_is_not_trusted_while_the_log_tells_that_it_is_lost() -> None:
    lost = claim()
    leases = Leases(lambda leases, _: frozenset(leases), lease_us=30_000_000)
    leases.add([lost])
    trusted: list[bool] = []

    class Asking(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            trusted.append(leases.trusts(lost.lease))

    logger, asking = logging.getLogger("django_delayq"), Asking()
    logger.addHandler(asking)
    try:
        leases.beat()
    finally:
        logger.removeHandler(asking)
    assert trusted == [False]


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="this system's clocks do not tell of suspends")
def test_the_time_a_host_is_suspended_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    held = claim()
    leases = Leases(lambda *_: frozenset(), lease_us=30_000_000)
    leases.add([held])
    clock = time.clock_gettime
    assert leases.trusts(held.lease)
    monkeypatch.setattr(time, "clock_gettime", lambda number: clock(number) + 100 * (number == time.CLOCK_BOOTTIME))
    assert not leases.trusts(held.lease)
    # A heartbeat makes it new by the same clock.
    leases.beat()
    assert leases.trusts(held.lease)


def test_the_hard_limit_counts_from_the_begin_of_the_code() -> None:
    # Its process took 5 s to start, longer than the limit.
    starting = claim(age=5, hard_timeout_us=1_000_000)
    leases = Leases(lambda *_: frozenset(), lease_us=30_000_000)
    leases.add([starting])
    until_before = leases._held[starting.lease][1]
    leases.beat()
    assert leases._held[starting.lease][1] > until_before
    assert leases.begin(starting.lease)
    until_before = leases._held[starting.lease][1]
    leases.beat()
    assert leases._held[starting.lease][1] > until_before


def test_a_claim_that_never_begins_is_not_renewed_for_ever() -> None:
    asked: list[list[bytes]] = []
    leases = Leases(lambda leases, _: asked.append(leases) or frozenset(), lease_us=30_000_000)
    leases.add([claim(age=121)])
    leases.beat()
    assert asked == []
