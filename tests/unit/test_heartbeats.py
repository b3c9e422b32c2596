"""Heartbeats: they go on whatever one beat raises, and end with their service."""

import threading
from collections.abc import Callable
from time import monotonic

import pytest

from django_delayq.attempts import Attempts
from django_delayq.exceptions import StoreUnavailable
from django_delayq.job import Claim, Job
from django_delayq.leases import Leases
from django_delayq.service import Service

PATIENCE = 30.0


def claim() -> Claim:
    """Return a claim made just now."""
    job = Job(raw_id=b"i" * 12, shard=0, task="shop.remind", queue="mail")
    return Claim(
        lease=job.member + bytes(16),
        shard=0,
        queue=job.queue,
        rank=1,
        due_us=1,
        job=job,
        attempts=Attempts(),
        claimed_us=1,
        sent_at=monotonic(),
    )


class Door:
    """Answer heartbeats; the first one by raising."""

    def __init__(self, error: Exception) -> None:
        self._errors = [error]
        self.asked: list[list[bytes]] = []
        self.answered = threading.Event()

    def heartbeat(self, leases: list[bytes]) -> frozenset[bytes]:
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
    leases = Leases(frozenset, lease_us=30_000_000)
    leases.add([held])
    assert leases.trusts(held.lease)
    assert leases.beat() == {held.lease}
    assert not leases.trusts(held.lease)
    assert leases.beat() == frozenset()
