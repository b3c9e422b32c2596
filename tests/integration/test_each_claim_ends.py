"""Each claim of a pool ends exactly once, whatever interrupts the code that runs it, and its slot is free again."""

import asyncio
import ctypes
import errno
import linecache
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from django_delayq.job.attempts import AttemptHistory
from django_delayq.job.ids import next_id
from django_delayq.job.job import Claim, Job
from django_delayq.job.outcome import Outcome, OutcomeKind
from django_delayq.task import registry
from django_delayq.task.task import Task
from django_delayq.worker.pools import claim_queue, threads
from django_delayq.worker.pools.asyncio import AsyncioPool
from django_delayq.worker.pools.base import Pool
from django_delayq.worker.pools.child import ChildProcess
from django_delayq.worker.pools.recovery import RecoveryRunner
from django_delayq.worker.pools.threads import ThreadPool
from tests.factories import claim_for
from tests.sample_app import tasks
from tests.subprocesses import until

#: Threads and loops that are interrupted leave things unfinished, and the interpreter warns about that.
pytestmark = pytest.mark.filterwarnings("ignore")
Make = Callable[..., Claim]
#: Files in which an exception strikes at every line.
FILES = {claim_queue.__file__, threads.__file__}


class Late(BaseException):
    """What a library's time limit raises, too late."""


class Ledger:
    """An owner of claims that lets all begin and keeps their outcomes."""

    def __init__(self) -> None:
        self.outcomes: list[tuple[Claim, Outcome]] = []

    def may_begin(self, claim: Claim) -> bool:
        return True

    def finished(self, claim: Claim, outcome: Outcome) -> None:
        self.outcomes.append((claim, outcome))

    def of(self, claim: Claim) -> Outcome:
        """Wait for a claim's outcome."""
        until(lambda: any(ended is claim for ended, _ in self.outcomes), what="the end of a claim", patience=10)
        return next(outcome for ended, outcome in self.outcomes if ended is claim)


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delayq_settings: Any) -> Ledger:
    monkeypatch.setenv("DELAYQ_TEST_LEDGER", str(tmp_path / "ledger"))
    return Ledger()


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Make:
    """Make a claim of a function, as its task."""
    monkeypatch.setattr(registry, "_tasks", dict(registry._tasks))

    def made(func: Any, *args: Any, suspect: bool = False, **job: Any) -> Claim:
        name = func.name if isinstance(func, Task) else f"shop.{func.__name__}"
        if not isinstance(func, Task):
            registry._tasks[name] = Task(func=func, name=name)
        made = Job(raw_id=next_id(), shard=0, task=name, queue="default", args=list(args), **job)
        return claim_for(made, attempts=AttemptHistory(ended=1, crash_suspected=suspect))

    return made


def threads_of(size: int) -> ThreadPool:
    """Return a pool of threads, as run_worker makes it."""
    return ThreadPool(size, recovery=RecoveryRunner())


@pytest.fixture(params=[threads_of, AsyncioPool])
def pool(request: Any) -> Iterator[Pool]:
    made = request.param(2)
    yield made
    made.close()


@pytest.fixture
def loop() -> Iterator[AsyncioPool]:
    made = AsyncioPool(4)
    yield made
    made.close()


def quick() -> None:
    """End at once."""


async def wait() -> None:
    """Wait for ever."""
    await asyncio.Event().wait()


async def pause() -> None:
    """Wait a few turns of the loop."""
    # By timers, so that the loop sleeps in between and its selector is among the lines that are struck.
    for _ in range(5):
        await asyncio.sleep(0.01)


async def cancel_itself() -> None:
    """Be cancelled at the next wait."""
    asyncio.current_task().cancel()  # type: ignore[union-attr]
    await asyncio.sleep(0)


async def cancel_itself_last() -> None:
    """Be cancelled in its last statement."""
    asyncio.current_task().cancel()  # type: ignore[union-attr]


async def cancel_all() -> None:
    """Cancel each asyncio task of the loop, also those that have not made their first step."""
    for task in asyncio.all_tasks():
        task.cancel()


@pytest.mark.parametrize("func", [cancel_itself, cancel_itself_last])
def test_a_coroutine_that_cancels_itself_fails_and_its_slot_is_free(
    func: Any, loop: AsyncioPool, ledger: Ledger, make: Make
) -> None:
    claim = make(func)
    loop.submit([claim], ledger)
    outcome = ledger.of(claim)
    assert outcome.kind is OutcomeKind.FAILED
    assert "The task was cancelled by code in its event loop" in outcome.error
    assert outcome.exception == "asyncio.exceptions.CancelledError"
    assert loop.held == 0


def test_coroutines_that_a_job_cancels_end_also_before_their_first_step(
    loop: AsyncioPool, ledger: Ledger, make: Make
) -> None:
    running = make(wait, hard_timeout_us=3_600_000_000)
    loop.submit([running], ledger)
    until(lambda: loop.has_begun(running), what="the first to begin")
    both = [make(cancel_all), make(wait)]
    # In one call: when the first one cancels all, the second exists and has made no step.
    loop.submit(both, ledger)
    for claim in (running, *both):
        outcome = ledger.of(claim)
        assert outcome.kind is OutcomeKind.FAILED
        assert "The task was cancelled" in outcome.error and "limit of" not in outcome.error
    assert loop.held == 0


def test_a_time_limit_is_distinguished_from_a_cancellation(loop: AsyncioPool, ledger: Ledger, make: Make) -> None:
    soft, hard = make(wait, timeout_us=50_000), make(wait, hard_timeout_us=50_000)
    loop.submit([soft, hard], ledger)
    assert "TaskTimeout" in ledger.of(soft).error and "was cancelled, by" not in ledger.of(soft).error
    assert ledger.of(hard).kind is OutcomeKind.CRASHED
    assert "hard limit of 0.05 s" in ledger.of(hard).error
    assert ledger.of(hard).run_us >= 50_000


def test_the_outcome_of_an_interrupted_coroutine_has_its_run_time(
    loop: AsyncioPool, ledger: Ledger, make: Make
) -> None:
    loop.submit([interrupted := make(wait), paused := make(pause)], ledger)
    ran_us = ledger.of(paused).run_us
    assert ran_us >= 40_000
    loop.close()
    assert ledger.of(interrupted).kind is OutcomeKind.INTERRUPTED
    # It began before the other one.
    assert ledger.of(interrupted).run_us >= ran_us


async def set_bad_factory() -> None:
    """Give the loop a task factory that raises."""

    def factory(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no more tasks")

    asyncio.get_running_loop().set_task_factory(factory)


async def shut_down() -> None:
    """Shut the executor down that all share."""
    await asyncio.get_running_loop().shutdown_default_executor()


async def use_thread() -> None:
    """Use a thread of the loop's."""
    await asyncio.to_thread(quick)


@pytest.mark.parametrize("harm", [set_bad_factory, shut_down])
def test_a_job_that_harms_the_loop_fails_no_other(harm: Any, loop: AsyncioPool, ledger: Ledger, make: Make) -> None:
    loop.submit([claim := make(harm)], ledger)
    ledger.of(claim)
    others = [make(pause), make(quick), make(use_thread)]
    loop.submit(others, ledger)
    assert [ledger.of(claim).kind for claim in others] == [OutcomeKind.SUCCEEDED] * 3


def test_a_loop_that_is_closed_is_replaced_and_what_ran_there_crashed(
    loop: AsyncioPool, ledger: Ledger, make: Make
) -> None:
    async def close_loop() -> None:
        running = asyncio.get_running_loop()
        # It refuses to be closed while it runs.
        running._thread_id = None  # type: ignore[attr-defined]
        running.close()

    loop.submit([claim := make(close_loop)], ledger)
    assert ledger.of(claim).kind is OutcomeKind.CRASHED
    loop.submit([later := make(pause)], ledger)
    assert ledger.of(later).kind is OutcomeKind.SUCCEEDED


def test_without_a_new_loop_the_process_ends_and_with_it_its_leases(
    loop: AsyncioPool, ledger: Ledger, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[int] = []
    new_loop = loop._new_loop

    def refuse() -> asyncio.AbstractEventLoop:
        monkeypatch.setattr(loop, "_new_loop", new_loop)
        raise OSError(errno.EMFILE, "Too many open files")

    async def close_loop() -> None:
        running = asyncio.get_running_loop()
        running._thread_id = None  # type: ignore[attr-defined]
        running.close()

    monkeypatch.setattr(loop, "_new_loop", refuse)
    monkeypatch.setattr(os, "_exit", ends.append)
    loop.submit([make(close_loop)], ledger)
    until(lambda: ends == [1], what="the process's end", patience=10)


def test_a_loop_pool_has_recovery_processes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[RecoveryRunner] = []
    begin = RecoveryRunner.__init__
    monkeypatch.setattr(RecoveryRunner, "__init__", lambda self: made.append(self) or begin(self))  # type: ignore[func-returns-value]
    pool = AsyncioPool(2)
    assert made == [pool.recovery]
    pool.close()


def test_if_no_thread_can_start_the_others_do_its_work(
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


def strike(thread: threading.Thread) -> None:
    """Raise Late in a thread, as libraries with time limits do."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(Late))


def pool_of_one(ledger: Ledger, make: Make) -> tuple[ThreadPool, Callable[[], None], list[threading.Thread]]:
    """Return a pool whose thread has run, a function that notes the thread that it runs in, and what it noted."""
    seen: list[threading.Thread] = []

    def remember() -> None:
        seen.append(threading.current_thread())

    pool = threads_of(1)
    pool.submit([first := make(remember)], ledger)
    ledger.of(first)
    return pool, remember, seen


def test_a_late_exception_costs_neither_the_next_claim_nor_the_thread(ledger: Ledger, make: Make) -> None:
    pool, remember, seen = pool_of_one(ledger, make)
    for _ in range(3):
        # The thread waits for a claim; the exception arrives once it has got one.
        strike(seen[-1])
        pool.submit([claim := make(remember), after := make(remember)], ledger)
        assert {ledger.of(claim).kind, ledger.of(after).kind} <= {OutcomeKind.SUCCEEDED, OutcomeKind.UNSTARTED}
    assert pool.held == 0
    assert set(seen) == {seen[0]}


def test_a_thread_that_is_struck_again_and_again_goes_on(ledger: Ledger, make: Make) -> None:
    pool, remember, seen = pool_of_one(ledger, make)
    for _ in range(100):
        strike(seen[-1])
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
    # A callback of the loop that was struck is repeated after a second: too slow for each line.
    for number in range(1, 400, 1 if func is quick else 5):
        struck = threading.Event()
        threading.settrace(tracer(number, files, struck))
        try:
            pool = kind(1)
            claims = [make(func) for _ in range(3)]
            # One after another: each is submitted when the one before has ended.
            for claim in claims:
                pool.submit([claim], ledger)
                ledger.of(claim)
        finally:
            threading.settrace(None)  # type: ignore[arg-type]
        assert pool.held == 0, f"struck at step {number}"
        pool.close()
        if not struck.is_set():
            assert number > 20, "the lines were traced"
            break
    else:
        raise AssertionError("there are more lines than were struck")
    # An exception between the call of the owner and the record of that call makes the owner get the outcome again.
    ends = Counter(claim.lease for claim, _ in ledger.outcomes)
    assert sum(ends.values()) - len(ends) <= 3
    assert len({(claim.lease, outcome) for claim, outcome in ledger.outcomes}) == len(ends)


def tracer(number: int, files: set[Any], struck: threading.Event) -> Any:
    """Return a trace function that raises at the line of that number, once."""
    left = iter(range(number, 0, -1))

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        # While a thread starts, no other thread knows it and could strike it.
        if frame.f_code.co_filename not in files or frame.f_code.co_name == "_work":
            return None
        # Not where a lock is released: CPython checks for exceptions of other threads after that call, not before.
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        if event == "line" and not line.startswith("with ") and next(left, 0) == 1:
            struck.set()
            raise Late
        return trace

    return trace


class Meta(type):
    """A metaclass that raises SystemExit if the name of its class is read."""

    def __getattribute__(cls, name: str) -> Any:
        if name in ("__module__", "__qualname__", "__name__"):
            raise SystemExit(3)
        return super().__getattribute__(name)


class Hostile(Exception, metaclass=Meta):
    """An exception whose class and text cannot be read."""

    def __str__(self) -> str:
        raise KeyboardInterrupt

    __repr__ = __str__


def test_an_exception_whose_class_cannot_be_read_is_a_failure(pool: Pool, ledger: Ledger, make: Make) -> None:
    def fail() -> None:
        raise Hostile

    async def fail_async() -> None:
        raise Hostile

    claims = [make(fail), make(fail_async)]
    pool.submit(claims, ledger)
    for claim in claims:
        outcome = ledger.of(claim)
        assert outcome.kind is OutcomeKind.FAILED and "Hostile" in outcome.error
    assert pool.held == 0


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


def test_a_suspect_of_the_loop_has_its_whole_limit_after_its_process_started(
    loop: AsyncioPool, ledger: Ledger, make: Make
) -> None:
    # A process takes longer than this to start.
    loop.submit([claim := make(tasks.noop, suspect=True, hard_timeout_us=150_000)], ledger)
    assert ledger.of(claim).kind is OutcomeKind.SUCCEEDED


def test_two_suspects_of_the_loop_run_at_once_and_others_can_be_released(
    loop: AsyncioPool, ledger: Ledger, make: Make, gate: Path
) -> None:
    claims = [make(tasks.wait_for, str(gate), suspect=True) for _ in range(4)]
    loop.submit(claims, ledger)
    until(lambda: loop.queued == 2, what="two to be taken")
    assert loop.oldest_wait() < 0.1, "they are not released at once, only to be claimed again"
    loop.release_queued()
    assert [ledger.of(claim).kind for claim in claims[2:]] == [OutcomeKind.UNSTARTED] * 2
    until(lambda: all(map(loop.has_begun, claims[:2])), what="two to begin")
    gate.touch()
    assert [ledger.of(claim).kind for claim in claims[:2]] == [OutcomeKind.SUCCEEDED] * 2


def test_a_claim_that_has_not_begun_when_a_pool_is_closed_never_begins(
    pool: Pool, ledger: Ledger, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed, wait_ready = threading.Event(), ChildProcess.wait_ready
    # The process takes longer to start than this test takes to close the pool.
    monkeypatch.setattr(ChildProcess, "wait_ready", lambda child: closed.wait(30) and wait_ready(child))
    pool.submit([claim := make(tasks.noop, suspect=True)], ledger)
    until(lambda: pool.queued == 0, what="its process to start")
    assert not pool.has_begun(claim)
    pool.close()
    closed.set()
    assert not pool.has_begun(claim)
    assert ledger.of(claim).kind is OutcomeKind.UNSTARTED
