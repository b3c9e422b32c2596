"""ActiveThreads: how many threads are wanted after what the last claims cost, and who sees a claim that is queued."""

import threading
from typing import Any

import pytest

from django_delayq.worker.pools import active_threads
from django_delayq.worker.pools.active_threads import ActiveThreads
from django_delayq.worker.pools.claim_queue import ClaimQueue, Seat


class Claim:
    """What the queue needs of a claim."""

    lease = b"lease"


def queue_of_one() -> ClaimQueue:
    claims, claim = ClaimQueue(), Claim()
    owner: Any = None
    claims.put([claim], owner)  # type: ignore[list-item]
    return claims


def test_a_claim_that_is_queued_while_the_last_thread_leaves_is_seen() -> None:
    """That thread has found the queue empty, and nobody wakes it: it still counts as active."""
    active, seat = ActiveThreads(queue_of_one(), 1), Seat()
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
    active._seen = (active_threads.INTERVAL, cpu, finished)
    active._decide()
    assert active._wanted == wanted
    assert active._seen == (0.0, 0.0, 0)


def test_one_thread_is_always_wanted() -> None:
    active = ActiveThreads(ClaimQueue(), 8)
    for _ in range(10):
        active._active = {Seat()}
        active._seen = (active_threads.INTERVAL, active_threads.INTERVAL, 300)
        active._decide()
    assert active._wanted == 1


def test_after_a_pause_all_threads_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(active_threads, "PAUSE", 0.0)
    active = ActiveThreads(queue_of_one(), 8)
    active._wanted = 1
    active.wait(Seat())
    assert active._wanted == 8
