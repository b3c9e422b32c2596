"""Context of a run: the current job, coroutines, a fresh context, the check for a recovered job, receivers."""

import asyncio
import logging
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

import pytest
from django.utils import timezone, translation

from django_delayq import current_job
from django_delayq.job.attempts import AttemptHistory
from django_delayq.job.outcome import OutcomeKind
from django_delayq.signals import job_started
from django_delayq.worker.execution import run_async
from tests.integration.worker.execution.claims import SUSPECT, Run, claim_of


def test_current_job_returns_the_job_that_runs(run_task: Run) -> None:
    seen: list[Any] = []

    def func() -> None:
        job = current_job()
        assert job
        seen.append((job.id, job.attempt, job.recovered, job.due, job.queue, job.key))

    async def async_func() -> None:
        await asyncio.sleep(0)
        func()

    for body in (func, async_func):
        run_task(body)
        run_task(body, attempts=SUSPECT, queue="bulk", key="k")
        [(first_id, *first), (second_id, *second)] = seen
        moment = datetime(2030, 1, 1, 0, 0, 0, 123_000, tzinfo=UTC)
        assert first == [1, False, moment, "mail", None] and second == [2, True, moment, "bulk", "k"]
        assert first_id != second_id
        seen.clear()
    assert current_job() is None


def test_a_coroutine_function_runs_to_its_end(run_task: Run) -> None:
    seen: list[Any] = []

    async def func(value: int) -> None:
        await asyncio.sleep(0)
        seen.append(value)

    assert run_task(func, 5).kind is OutcomeKind.SUCCEEDED and seen == [5]


variable: ContextVar[str] = ContextVar("variable", default="untouched")


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_language_time_zone_and_context_start_fresh(kind: str, run_task: Run) -> None:
    seen: list[Any] = []

    def func() -> None:
        seen.append((variable.get(), translation.get_language(), timezone.get_current_timezone_name()))
        variable.set("touched")
        translation.activate("de")
        timezone.activate("Asia/Tokyo")

    async def async_func() -> None:
        func()

    mine = (variable.get(), translation.get_language(), timezone.get_current_timezone_name())
    for _ in range(2):
        assert run_task(func if kind == "sync" else async_func).kind is OutcomeKind.SUCCEEDED
    assert seen[0] == seen[1] and seen[0][0] == "untouched" and "Tokyo" not in seen[1][2]
    assert mine == (variable.get(), translation.get_language(), timezone.get_current_timezone_name())


def test_a_recovered_job_that_was_done_is_not_run_again(run_task: Run) -> None:
    ran: list[Any] = []
    checked: list[Any] = []

    def already_done(*args: Any, **kwargs: Any) -> bool:
        checked.append((args, kwargs))
        return True

    facts: dict[str, Any] = {"already_done": already_done, "kwargs": {"a": 1}}
    assert run_task(lambda *a, **k: ran.append(a), 7, attempts=SUSPECT, **facts).kind is OutcomeKind.SUCCEEDED
    assert (ran, checked) == ([], [((7,), {"a": 1})])
    for attempts in (AttemptHistory(), AttemptHistory(ended=1)):
        run_task(lambda *a, **k: ran.append(a), 7, attempts=attempts, **facts)
    assert len(ran) == 2 and len(checked) == 1
    facts["already_done"] = lambda *a, **k: False
    run_task(lambda *a, **k: ran.append(a), 7, attempts=SUSPECT, **facts)
    assert len(ran) == 3


@pytest.mark.parametrize("checked_by", ["sync", "async"])
@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("done", [True, False])
def test_an_interrupted_job_is_asked_whether_it_was_done(run_task: Run, kind: str, checked_by: str, done: bool) -> None:
    """Both kinds of functions, in a thread and in an event loop, where plain code may not read the database."""
    ran: list[bool] = []

    def already_done(number: int) -> bool:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        return done

    async def already_done_async(number: int) -> bool:
        await asyncio.sleep(0)
        return done

    def func(number: int) -> None:
        ran.append(current_job().recovered)

    async def func_async(number: int) -> None:
        func(number)

    attempts = AttemptHistory().cut_short()
    outcomes = [
        run_task(
            func if kind == "sync" else func_async,
            7,
            attempts=attempts,
            already_done=already_done if checked_by == "sync" else already_done_async,
        )
    ]
    if kind == "async":
        outcomes.append(asyncio.run(run_async(claim_of("shop.tasks.play", 7, attempts=attempts))))
    assert {outcome.kind for outcome in outcomes} == {OutcomeKind.SUCCEEDED}, outcomes[-1].error
    assert ran == ([] if done else [True] * len(outcomes))


def test_an_error_of_already_done_is_a_failure(run_task: Run) -> None:
    def already_done() -> bool:
        raise ValueError("cannot say")

    outcome = run_task(lambda: None, attempts=SUSPECT, already_done=already_done)
    assert outcome.kind is OutcomeKind.FAILED and "cannot say" in outcome.error


def test_a_broken_receiver_does_not_stop_the_job(run_task: Run, caplog: pytest.LogCaptureFixture) -> None:
    def broken(**_: Any) -> None:
        raise RuntimeError("receiver broke")

    job_started.connect(broken)
    try:
        with caplog.at_level(logging.ERROR):
            assert run_task(lambda: None).kind is OutcomeKind.SUCCEEDED
    finally:
        job_started.disconnect(broken)
    assert "receiver broke" in caplog.text


def test_a_receiver_that_exits_does_not_stop_the_job(run_task: Run, caplog: pytest.LogCaptureFixture) -> None:
    def leaves(**_: Any) -> None:
        sys.exit(3)

    job_started.connect(leaves)
    try:
        assert run_task(lambda: None).kind is OutcomeKind.SUCCEEDED
    finally:
        job_started.disconnect(leaves)
    assert "later receivers were not called" in caplog.text
