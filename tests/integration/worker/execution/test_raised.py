"""What a task and its `retry_delay` raise: the class that is told, the thread that computes, and what the log shows."""

import asyncio
import logging
import threading
from traceback import walk_tb
from typing import Any

import pytest

from django_delayq import RetryPolicy
from django_delayq.job.outcome import Outcome, OutcomeKind, decide
from django_delayq.task import registry
from django_delayq.task.task import Task
from django_delayq.worker.execution import run, run_async
from tests.integration.worker.execution.claims import PATIENCE, SUSPECT, Run, claim_of, raises

CANARY = "4111-canary"


def in_loop(task: Task[Any, Any], *args: Any, **facts: Any) -> Outcome:
    """Run a task in an event loop of its own."""
    registry._tasks[task.name] = task

    async def bounded() -> Outcome:
        return await asyncio.wait_for(run_async(claim_of(task.name, *args, **facts)), PATIENCE)

    return asyncio.run(bounded())


async def declined() -> None:
    raise ValueError("no")


def test_a_stop_iteration_of_a_plain_task_keeps_its_class(run_task: Run) -> None:
    policy = RetryPolicy(retry_on=StopIteration)
    outcome = run_task(raises(StopIteration("empty")), retry=policy)
    assert (outcome.kind, outcome.exception) == (OutcomeKind.FAILED, "builtins.StopIteration")
    assert decide(outcome, policy, attempt=1, jitter=0.5).action == "retry"


def test_a_stop_iteration_of_plain_code_beside_a_coroutine_fails_the_attempt(run_task: Run) -> None:
    def check() -> bool:
        return next(iter(()))

    task: Task[Any, Any] = Task(func=declined, name="shop.tasks.play", already_done=check)
    outcome = in_loop(task, attempts=SUSPECT)
    assert outcome.kind is OutcomeKind.FAILED and "raised StopIteration" in outcome.error


@pytest.mark.parametrize("wrong", [None, StopIteration(), SystemExit()], ids=repr)
def test_a_retry_delay_beside_a_coroutine_runs_in_the_thread_of_its_job(run_task: Run, wrong: Any) -> None:
    threads: list[threading.Thread] = []

    def delay(attempt: int, error: BaseException) -> float:
        threads.append(threading.current_thread())
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        if wrong is not None:
            raise wrong
        return 7.0

    outcome = in_loop(Task(func=declined, name=f"shop.tasks.{wrong!r}", retry_delay=delay))
    assert outcome.delay_us == (7_000_000 if wrong is None else None) and outcome.exception == "builtins.ValueError"
    assert threads and threading.current_thread() not in threads


@pytest.mark.parametrize("chained", [False, True], ids=["unchained", "chained"])
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_the_log_of_a_wrong_retry_delay_shows_the_job_and_no_sensitive_variable(
    run_task: Run, kind: str, chained: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def charge(card: str) -> None:
        number = [card]
        raise ValueError(len(number))

    async def charge_async(card: str) -> None:
        charge(card)

    def delay(attempt: int, error: BaseException) -> float:
        raise KeyError("delay") from (error if chained else None)

    name = f"shop.tasks.charge_{kind}_{chained}"
    func: Any = charge if kind == "sync" else charge_async
    task: Task[Any, Any] = Task(func=func, name=name, retry_delay=delay, sensitive=("card",))
    registry._tasks[name] = task
    outcome = run(claim_of(name, CANARY)) if kind == "sync" else in_loop(task, CANARY)
    assert outcome.exception == "builtins.ValueError" and "in charge" in outcome.error
    [record] = [each for each in caplog.records if "retry_delay of" in each.getMessage()]
    fields = vars(record)
    assert (fields["task"], fields["queue"], fields["attempt"]) == (name, "mail", 1) and fields["job_id"]
    assert record.exc_info and "in delay" in logging.Formatter().formatException(record.exc_info)
    left, shown = [record.exc_info[1]], list[BaseException]()
    while left:
        each = left.pop()
        if each is not None:
            shown.append(each)
            left += [each.__cause__, each.__context__]
            assert CANARY not in repr([frame.f_locals for frame, _ in walk_tb(each.__traceback__)])
    assert (outcome.raised in shown) is chained
