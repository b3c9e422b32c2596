"""Active threads: each claim ends even if only one thread is wanted, beside claims that wait, compute or hold on."""

import threading
import time
from math import inf

import pytest

from django_delayq.worker.pools import active_threads
from django_delayq.worker.pools.claim_queue import Seat
from django_delayq.worker.pools.threads import ThreadPool
from tests.integration.worker.pools.each_claim_ends.pools import Ledger, Make, quick, threads_of


@pytest.fixture(autouse=True)
def _never_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a pause all threads would be wanted."""
    monkeypatch.setattr(active_threads, "PAUSE", inf)


def pool_that_wants_one(size: int) -> ThreadPool:
    pool = threads_of(size)
    pool._active_threads._wanted = 1
    return pool


def test_many_short_claims_end(ledger: Ledger, make: Make) -> None:
    pool = pool_that_wants_one(8)
    for _ in range(50):
        claims = [make(quick) for _ in range(40)]
        pool.submit(claims, ledger)
        ledger.of(claims[-1])
    for claim, _ in list(ledger.outcomes):
        ledger.of(claim)
    assert len({claim.lease for claim, _ in ledger.outcomes}) == 2_000


def test_a_claim_ends_beside_one_that_waits(ledger: Ledger, make: Make) -> None:
    pool, gate = pool_that_wants_one(2), threading.Event()
    pool.submit([waiting := make(gate.wait, 60), other := make(quick)], ledger)
    ledger.of(other)
    assert pool.held == 1
    gate.set()
    ledger.of(waiting)


def test_claims_that_wait_run_in_all_threads_at_once(ledger: Ledger, make: Make) -> None:
    pool, barrier = pool_that_wants_one(8), threading.Barrier(8, timeout=20)
    claims = [make(barrier.wait) for _ in range(8)]
    pool.submit(claims, ledger)
    for claim in claims:
        ledger.of(claim)
    assert not barrier.broken


def test_a_thread_that_ends_and_cannot_be_replaced_makes_room_for_another_standby(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def ends() -> None:
        raise KeyboardInterrupt

    def refused(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    pool, seat = pool_that_wants_one(8), Seat()
    pool._active_threads._active.add(seat)
    pool._active_threads._standby = seat
    monkeypatch.setattr(pool, "_start", refused)
    with pytest.raises(RuntimeError, match="new thread"):
        pool._work(seat, 8, ends)
    assert seat not in pool._active_threads._active
    assert pool._active_threads._standby is None


def most_at_once(ledger: Ledger, make: Make, *, seconds: float, count: int) -> int:
    """Return how many claims of so many seconds ran at once in a pool that wants one thread at first."""
    running: list[None] = []
    most = 0

    def wait_shortly() -> None:
        nonlocal most
        running.append(None)
        most = max(most, len(running))
        # The work of the job, not a wait of the test: it needs no interpreter for so long.
        time.sleep(seconds)
        running.pop()

    pool = pool_that_wants_one(8)
    claims = [make(wait_shortly) for _ in range(count)]
    pool.submit(claims, ledger)
    ledger.of(claims[-1])
    return most


def test_short_waits_are_shared_by_threads(ledger: Ledger, make: Make) -> None:
    """The thread that runs them is never held up, and yet the interpreter idles."""
    assert most_at_once(ledger, make, seconds=0.0005, count=400) > 1


def test_milliseconds_without_the_interpreter_are_shared_by_threads(
    ledger: Ledger, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread that compresses a file, say, uses the CPU like one that needs the interpreter."""
    monkeypatch.setattr(active_threads, "process_time", active_threads.monotonic)
    assert most_at_once(ledger, make, seconds=0.002, count=100) > 1


def test_a_claim_ends_beside_one_that_computes(ledger: Ledger, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    # A busy machine takes CPU time away, and then the interpreter seems to idle.
    monkeypatch.setattr(active_threads, "process_time", active_threads.monotonic)
    ended = threading.Event()

    def compute() -> None:
        while not ended.is_set():
            sum(range(100))

    pool = pool_that_wants_one(2)
    pool.submit([computing := make(compute), other := make(ended.set)], ledger)
    ledger.of(other)
    ledger.of(computing)
