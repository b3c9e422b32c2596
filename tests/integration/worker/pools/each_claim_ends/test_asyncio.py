"""Asyncio pool: each claim ends, even if coroutines cancel themselves or each other, or damage the loop."""

import asyncio
import errno
import gc
import os
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from django_delayq.job.outcome import OutcomeKind
from django_delayq.worker.pools.asyncio import AsyncioPool
from django_delayq.worker.pools.recovery import RecoveryRunner
from tests.integration.worker.pools.each_claim_ends.pools import Ledger, Make, pause, quick, wait
from tests.sample_app import tasks
from tests.subprocesses import until

#: Threads and loops that are interrupted leave things unfinished, and the interpreter warns about that.
pytestmark = pytest.mark.filterwarnings("ignore")


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


def test_coroutines_that_a_job_cancels_end_even_before_their_first_step(
    loop: AsyncioPool, ledger: Ledger, make: Make
) -> None:
    running = make(wait, hard_timeout_us=3_600_000_000)
    loop.submit([running], ledger)
    until(lambda: loop.has_begun(running), what="the first to begin")
    both = [make(cancel_all), make(wait)]
    # In one call: when the first one cancels all, the second exists but has not started.
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
    """Shut down the executor that all jobs share."""
    await asyncio.get_running_loop().shutdown_default_executor()


async def use_thread() -> None:
    """Use a thread of the loop's executor."""
    await asyncio.to_thread(quick)


@pytest.mark.parametrize("harm", [set_bad_factory, shut_down])
def test_a_job_that_damages_the_loop_fails_no_other(harm: Any, loop: AsyncioPool, ledger: Ledger, make: Make) -> None:
    loop.submit([claim := make(harm)], ledger)
    ledger.of(claim)
    others = [make(pause), make(quick), make(use_thread)]
    loop.submit(others, ledger)
    assert [ledger.of(claim).kind for claim in others] == [OutcomeKind.SUCCEEDED] * 3


def test_a_closed_loop_is_replaced_and_its_claims_crash(loop: AsyncioPool, ledger: Ledger, make: Make) -> None:
    async def close_loop() -> None:
        running = asyncio.get_running_loop()
        # A loop refuses to be closed while it runs.
        running._thread_id = None  # type: ignore[attr-defined]
        running.close()

    loop.submit([claim := make(close_loop)], ledger)
    assert ledger.of(claim).kind is OutcomeKind.CRASHED
    loop.submit([later := make(pause)], ledger)
    assert ledger.of(later).kind is OutcomeKind.SUCCEEDED


def test_the_process_ends_if_no_new_loop_can_be_made(
    loop: AsyncioPool, ledger: Ledger, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[int] = []
    new_loop = asyncio.new_event_loop

    def refuse() -> asyncio.AbstractEventLoop:
        monkeypatch.setattr(asyncio, "new_event_loop", new_loop)
        raise OSError(errno.EMFILE, "Too many open files")

    async def close_loop() -> None:
        running = asyncio.get_running_loop()
        running._thread_id = None  # type: ignore[attr-defined]
        running.close()

    monkeypatch.setattr(asyncio, "new_event_loop", refuse)
    monkeypatch.setattr(os, "_exit", ends.append)
    loop.submit([make(close_loop)], ledger)
    until(lambda: ends == [1], what="the process's end", patience=10)


def recoveries() -> set[RecoveryRunner]:
    """Return all that exist in this process."""
    return {each for each in gc.get_objects() if type(each) is RecoveryRunner}


def test_an_asyncio_pool_makes_its_recovery_processes_once() -> None:
    before = recoveries()
    pool = AsyncioPool(2)
    assert recoveries() - before == {pool.recovery}
    pool.close()


def test_a_suspect_of_the_loop_has_its_whole_limit_after_its_process_started(
    loop: AsyncioPool, ledger: Ledger, make: Make
) -> None:
    # A process takes longer than this to start.
    loop.submit([claim := make(tasks.noop, suspect=True, hard_timeout_us=500_000)], ledger)
    assert ledger.of(claim).kind is OutcomeKind.SUCCEEDED


def test_two_suspects_of_the_loop_run_at_once_and_others_can_be_released(
    loop: AsyncioPool, ledger: Ledger, make: Make, gate: Path
) -> None:
    claims = [make(tasks.wait_for, str(gate), suspect=True) for _ in range(4)]
    began = monotonic()
    loop.submit(claims, ledger)
    until(lambda: loop.queued == 2, what="two to leave the queue")
    assert loop.oldest_wait() <= monotonic() - began, "they would be released at once and claimed again"
    loop.release_queued()
    assert [ledger.of(claim).kind for claim in claims[2:]] == [OutcomeKind.UNSTARTED] * 2
    until(lambda: all(map(loop.has_begun, claims[:2])), what="two to begin")
    gate.touch()
    assert [ledger.of(claim).kind for claim in claims[:2]] == [OutcomeKind.SUCCEEDED] * 2
