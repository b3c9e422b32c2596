"""ActiveThreads: how many threads are wanted after what the last claims cost, and who sees a claim that is queued."""

import math
import threading
import time
from typing import Any

import pytest

from django_delayq.worker.pools import active_threads
from django_delayq.worker.pools.active_threads import ActiveThreads
from django_delayq.worker.pools.claim_queue import ClaimQueue, Entry, Seat


class Claim:
    """What the queue needs of a claim."""

    def __init__(self, number: int = 0) -> None:
        self.lease = b"lease %d" % number


def queue_of(count: int) -> ClaimQueue:
    claims = ClaimQueue()
    owner: Any = None
    claims.put([Claim(number) for number in range(count)], owner)  # type: ignore[misc]
    return claims


def busy(*, since: float) -> Seat:
    claim: Any = Claim()
    owner: Any = None
    seat = Seat()
    seat.entry = Entry(claim, owner, since, began=since)
    return seat


def test_a_claim_that_is_queued_while_the_last_thread_leaves_is_seen() -> None:
    """That thread has found the queue empty, and nobody wakes it: it still counts as active."""
    active, seat = ActiveThreads(queue_of(1), 1), Seat()
    active._active.add(seat)
    active.wake(1)
    assert active._signals.empty()
    thread = threading.Thread(target=active.wait, args=(seat,), daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    ("cpu", "finished", "wanted"),
    [
        pytest.param(0.020, 300, 4, id="short jobs limited by the interpreter"),
        pytest.param(0.015, 300, 8, id="short jobs that wait"),
        pytest.param(0.040, 300, 8, id="short jobs that compute on two CPUs"),
        pytest.param(0.020, 20, 8, id="long jobs"),
    ],
)
def test_fewer_threads_are_wanted_only_for_short_jobs_that_keep_the_interpreter_busy(
    cpu: float, finished: int, wanted: int
) -> None:
    active = ActiveThreads(ClaimQueue(), 8)
    active._active = {Seat() for _ in range(8)}
    active._measured = (active_threads.INTERVAL, cpu, finished)
    active._lower()
    assert active._wanted == wanted
    assert active._measured == (0.0, 0.0, 0)


def test_one_thread_is_always_wanted() -> None:
    active = ActiveThreads(ClaimQueue(), 8)
    for _ in range(10):
        active._active = {Seat()}
        active._measured = (active_threads.INTERVAL, active_threads.INTERVAL, 300)
        active._lower()
    assert active._wanted == 1


def test_threads_that_long_jobs_hold_are_wanted_beside_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic()
    monkeypatch.setattr(active_threads, "monotonic", lambda: now)
    active = ActiveThreads(ClaimQueue(), 8)
    active._active = {busy(since=now - 1) for _ in range(3)} | {busy(since=now)} | {Seat()}
    for _ in range(5):
        active._measured = (active_threads.INTERVAL, active_threads.INTERVAL, 300)
        active._lower()
    assert active._wanted == 4


def test_a_measurement_that_has_just_begun_decides_nothing() -> None:
    active = ActiveThreads(ClaimQueue(), 8)
    active._active = {Seat() for _ in range(8)}
    active._measured = (0.0001, 0.0001, 10)
    active._lower()
    assert active._wanted == 8


def test_after_a_pause_all_threads_are_wanted_and_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(active_threads, "PAUSE", 0.0)
    active = ActiveThreads(queue_of(8), 8)
    active._wanted = 1
    active.wake(8)
    assert active._signals.qsize() == active._wanted == 8


@pytest.mark.parametrize(("wanted", "signals"), [(1, 1), (2, 1), (8, 1)])
def test_a_thread_that_becomes_active_calls_the_next_one_for_what_is_queued(wanted: int, signals: int) -> None:
    """It may have been the standby, and have taken the signal of another thread."""
    active = ActiveThreads(queue_of(3), 8)
    active._wanted = wanted
    active.wait(Seat())
    assert active._signals.qsize() == signals


def test_a_thread_that_takes_the_last_claim_calls_nobody() -> None:
    active = ActiveThreads(queue_of(1), 8)
    active.wait(Seat())
    assert active._signals.empty()


def test_one_more_thread_takes_claims_if_jobs_wait_however_many_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(active_threads, "process_time", lambda: 0.0)
    # No number of ended jobs is small then.
    monkeypatch.setattr(active_threads, "SHORT", math.inf)
    active = ActiveThreads(queue_of(2), 8)
    active._active, active._wanted, active._measuring_from = {Seat()}, 1, active._clocks()
    thread = threading.Thread(target=active.wait, args=(Seat(),), daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    assert active._wanted == 2
