"""Time limits of tasks and coroutines, in a forked process too."""

import asyncio
import subprocess
import sys
import textwrap
import threading

import pytest

from django_delayq import RetryLater
from django_delayq.exceptions import TaskTimeout
from django_delayq.job.outcome import OutcomeKind
from django_delayq.worker import time_limit
from django_delayq.worker.time_limit import Limit
from tests.integration.worker.execution.claims import Run, spin


def test_a_task_over_its_timeout_fails(run_task: Run) -> None:
    outcome = run_task(spin, timeout_us=1_000)
    assert outcome.kind is OutcomeKind.FAILED and "TaskTimeout" in outcome.error
    assert run_task(lambda: None, timeout_us=1_000_000_000).kind is OutcomeKind.SUCCEEDED


def test_a_coroutine_over_its_timeout_fails(run_task: Run) -> None:
    cleaned: list[int] = []

    async def func() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(1)

    outcome = run_task(func, timeout_us=1_000)
    assert outcome.kind is OutcomeKind.FAILED and "TaskTimeout" in outcome.error and cleaned == [1]


def test_a_timeout_error_of_the_coroutine_itself_is_its_own(run_task: Run) -> None:
    async def func() -> None:
        raise TimeoutError("the bank")

    outcome = run_task(func, timeout_us=1_000_000_000)
    assert "TaskTimeout" not in outcome.error and "TimeoutError: the bank" in outcome.error


def test_a_task_may_clean_up_after_its_timeout(run_task: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[Limit] = []
    monkeypatch.setattr(time_limit, "watch", lambda _, limit: limits.append(limit))

    def func() -> None:
        try:
            # Not earlier: a timeout may come before any line of the task.
            threading.Thread(target=limits[0].expire).start()
            spin()
        except TaskTimeout:
            raise RetryLater(5) from None

    outcome = run_task(func, timeout_us=1_000)
    assert (outcome.kind, outcome.delay_us) == (OutcomeKind.RETRY_REQUESTED, 5_000_000)


def test_a_timeout_never_hits_the_next_job(run_task: Run) -> None:
    for _ in range(100):
        assert run_task(spin, timeout_us=500).kind is OutcomeKind.FAILED
        assert run_task(lambda: sum(range(1_000))).kind is OutcomeKind.SUCCEEDED


# The thread that watches time limits does not survive a fork, so a forked process must start its own.
FORKED = """
    import os
    from time import monotonic
    from django_delayq.exceptions import TaskTimeout
    from django_delayq.worker.time_limit import TimeLimit

    def spin():
        give_up = monotonic() + 20
        while monotonic() < give_up:
            pass

    def no_timeout():
        try:
            with TimeLimit(1000):
                spin()
        except TaskTimeout:
            return 0
        return 1

    assert no_timeout() == 0
    child = os.fork()
    if child == 0:
        os._exit(no_timeout())
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_time_limits_hold_in_a_forked_process() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(FORKED)],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.stdout.strip() == "0", done.stderr
