"""Thread pool: each claim ends, even if threads cannot start, are stuck, or get an exception at any line."""

import ctypes
import linecache
import sys
import threading
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from django_delayq.job.outcome import OutcomeKind
from django_delayq.worker.pools import active_threads, claim_queue, threads
from django_delayq.worker.pools.asyncio import AsyncioPool
from django_delayq.worker.pools.threads import ThreadPool
from tests.integration.worker.pools.each_claim_ends.pools import Ledger, Make, pause, quick, threads_of
from tests.subprocesses import until

#: Threads and loops that are interrupted leave things unfinished, and the interpreter warns about that.
pytestmark = pytest.mark.filterwarnings("ignore")


#: Files in which the test raises an exception at every line.
FILES = {active_threads.__file__, claim_queue.__file__, threads.__file__}


class Late(BaseException):
    """An error that a library's time limit raises too late."""


def test_if_no_thread_can_start_the_other_threads_run_its_claims(
    ledger: Ledger, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = ThreadPool(2, recovery=None, ready=False)
    pool.submit([first := make(quick)], ledger)
    ledger.of(first)

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse)
        pool.submit([one := make(quick), other := make(quick)], ledger)
        assert [ledger.of(claim).kind for claim in (one, other)] == [OutcomeKind.SUCCEEDED] * 2
    assert len(pool._seats) == 1
    pool.submit([one := make(quick), other := make(quick)], ledger)
    assert [ledger.of(claim).kind for claim in (one, other)] == [OutcomeKind.SUCCEEDED] * 2
    assert len(pool._seats) == 2


def test_a_pool_is_stuck_once_every_thread_runs_beyond_its_limit(ledger: Ledger, make: Make) -> None:
    pool, gate = ThreadPool(2, recovery=None), threading.Event()
    try:
        for stuck in range(2):
            assert not pool.is_stuck(0.0)
            pool.submit([make(gate.wait, 60, hard_timeout_us=1)], ledger)
            until(lambda: pool._queue.overrun(0.0) == stuck + 1, what="one more beyond its limit")  # noqa: B023
        assert pool.is_stuck(0.0)
    finally:
        gate.set()


def raise_late(thread: threading.Thread) -> None:
    """Raise Late in a thread, as libraries with time limits do."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(Late))


def pool_of_one(ledger: Ledger, make: Make) -> tuple[ThreadPool, Callable[[], None], list[threading.Thread]]:
    """Return a pool whose thread has run, a function that records its thread, and the list of recorded threads."""
    seen: list[threading.Thread] = []

    def remember() -> None:
        seen.append(threading.current_thread())

    pool = threads_of(1)
    pool.submit([first := make(remember)], ledger)
    ledger.of(first)
    return pool, remember, seen


def test_a_late_exception_ends_neither_the_next_claim_nor_the_thread(ledger: Ledger, make: Make) -> None:
    pool, remember, seen = pool_of_one(ledger, make)
    for _ in range(3):
        # The thread waits for a claim; the exception arrives once it has got one.
        raise_late(seen[-1])
        pool.submit([claim := make(remember), after := make(remember)], ledger)
        assert {ledger.of(claim).kind, ledger.of(after).kind} <= {OutcomeKind.SUCCEEDED, OutcomeKind.UNSTARTED}
    assert pool.held == 0
    assert set(seen) == {seen[0]}


def test_a_thread_continues_after_many_exceptions(ledger: Ledger, make: Make) -> None:
    pool, remember, seen = pool_of_one(ledger, make)
    for _ in range(100):
        raise_late(seen[-1])
        pool.submit([claim := make(remember)], ledger)
        # The last exception may arrive late, in a later claim.
        pool.submit([after := make(remember)], ledger)
        assert {ledger.of(claim).kind, ledger.of(after).kind} <= {
            OutcomeKind.SUCCEEDED,
            OutcomeKind.UNSTARTED,
            OutcomeKind.FAILED,
        }
    pool.submit([last := make(remember)], ledger)
    ledger.of(last)
    pool.submit([last := make(remember)], ledger)
    assert ledger.of(last).kind is OutcomeKind.SUCCEEDED
    assert pool.held == 0


@pytest.mark.parametrize("func", [quick, pause])
def test_an_exception_at_any_line_leaves_no_claim_behind(
    func: Any, ledger: Ledger, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = threads_of if func is quick else AsyncioPool
    files = FILES if func is quick else FILES | {sys.modules[AsyncioPool.__module__].__file__}
    # A callback of the loop that raised is repeated after a second: too slow for each line.
    twice: set[str] = set()
    for number in range(1, 400, 1 if func is quick else 5):
        raised: list[str] = []
        threading.settrace(tracer(number, files, raised))
        try:
            pool = kind(1)
            claims = [make(func) for _ in range(3)]
            # One after another: each is submitted when the one before has ended.
            for claim in claims:
                pool.submit([claim], ledger)
                ledger.of(claim)
        finally:
            threading.settrace(None)  # type: ignore[arg-type]
        assert pool.held == 0, f"raised at step {number}"
        pool.close()
        if len([claim for claim, _ in ledger.outcomes if claim in claims]) > len(claims):
            twice.update(raised)
        if not raised:
            assert number > 20, "the lines were traced"
            break
    else:
        raise AssertionError("there are more lines than the test tried")
    # After an exception between the client's call and its record, at one line, the client gets the outcome again.
    assert len(twice) <= 1
    ends = Counter(claim.lease for claim, _ in ledger.outcomes)
    assert len({(claim.lease, outcome) for claim, outcome in ledger.outcomes}) == len(ends)


def tracer(number: int, files: set[Any], raised: list[str]) -> Any:
    """Return a trace function that raises at the line of that number, once, and appends the place to `raised`."""
    left = iter(range(number, 0, -1))

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        # While a thread starts, no other thread knows it and could raise in it.
        if frame.f_code.co_filename not in files or frame.f_code.co_name == "_work":
            return None
        # Not on a line that releases a lock: CPython checks for exceptions of other threads only after that call.
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        if event == "line" and not line.startswith("with ") and next(left, 0) == 1:
            raised.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")
            raise Late
        return trace

    return trace


def test_a_plain_claim_behind_stuck_threads_can_be_released(ledger: Ledger, make: Make) -> None:
    stuck, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        stuck.set()
        go_on.wait(30)

    pool = AsyncioPool(1)
    try:
        pool.submit([hanging := make(hang, hard_timeout_us=10_000)], ledger)
        assert stuck.wait(30)
        pool.submit([claim := make(quick)], ledger)
        assert (pool.held, pool.queued, pool.has_begun(claim)) == (2, 1, False)
        pool.release_queued()
        assert ledger.of(claim).kind is OutcomeKind.UNSTARTED
        assert not any(ended is hanging for ended, _ in ledger.outcomes)
    finally:
        go_on.set()
        pool.close()
