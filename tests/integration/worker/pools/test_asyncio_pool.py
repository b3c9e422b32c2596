"""Asyncio pool: thousands of `async def` jobs wait at once in one loop, and none can block or harm the others."""

from pathlib import Path

import pytest

from django_delayq import enqueue_many
from django_delayq.job.retry import RetryPolicy
from tests.inspection import inspection
from tests.sample_app import async_tasks, tasks
from tests.subprocesses import Processes

ONCE = RetryPolicy(max_attempts=1)


@pytest.fixture(autouse=True)
def known(processes: Processes) -> None:
    """Register the tasks in the processes."""
    processes.configure(TASK_MODULES=["tests.sample_app.async_tasks"])


def test_a_thousand_jobs_wait_at_once_in_one_process(processes: Processes, gate: Path) -> None:
    jobs = enqueue_many([async_tasks.wait_for.job(str(gate)) for _ in range(1_000)])
    worker = processes.worker("--pool=asyncio", "--concurrency=1000")
    runs = processes.until_runs(1_000)
    assert {run["pid"] for run in runs} == {worker.pid}
    gate.touch()
    processes.until_empty()
    assert len(jobs) == len(processes.runs())
    assert worker.end() == 0


def test_plain_functions_run_beside_the_loop(processes: Processes, gate: Path) -> None:
    waiting = tasks.wait_for.enqueue(str(gate))
    processes.worker("--pool=asyncio", "--concurrency=10")
    processes.until_state(waiting, "claimed")
    processes.until_gone([tasks.record_async.enqueue(1), tasks.record.enqueue(2), tasks.record_wrapped.enqueue(3)])
    gate.touch()
    processes.until_gone([waiting])


@pytest.mark.parametrize("task", [async_tasks.fail, async_tasks.exit_loop], ids=["error", "SystemExit"])
def test_a_task_that_fails_affects_no_other(processes: Processes, gate: Path, task: object) -> None:
    waiting = async_tasks.wait_for.enqueue(str(gate))
    worker = processes.worker("--pool=asyncio")
    failing = task.using(retry=ONCE).enqueue()  # type: ignore[attr-defined]
    processes.until_state(failing, "dead")
    gate.touch()
    processes.until_gone([waiting])
    assert worker.end() == 0


def test_soft_and_hard_limits_end_a_coroutine(processes: Processes) -> None:
    processes.worker("--pool=asyncio")
    soft = async_tasks.nap.using(timeout=0.1, retry=ONCE).enqueue(3_600)
    hard = async_tasks.nap_stubbornly.using(timeout=0.1, hard_timeout=0.3, retry=ONCE).enqueue(3_600)
    for job, text in ((soft, "TaskTimeout"), (hard, "hard limit of 0.3 s")):
        processes.until_state(job, "dead")
        letter = inspection().dead_letter(bytes.fromhex(job.id[:24]))
        assert letter is not None
        assert text in letter.attempts.last_error


def test_each_job_has_a_context_of_its_own(processes: Processes) -> None:
    jobs = [async_tasks.record_context.enqueue(number) for number in range(20)]
    processes.worker("--pool=asyncio", "--concurrency=20")
    processes.until_gone(jobs)
    assert {event["before"] for event in processes.events("context")} == {None}


@pytest.mark.parametrize("how", ["stop", "exit beside"])
def test_a_job_that_ends_the_loop_stops_no_other_job(processes: Processes, gate: Path, how: str) -> None:
    waiting = async_tasks.wait_for.enqueue(str(gate))
    worker = processes.worker("--pool=asyncio")
    processes.until_runs(1)
    ending = async_tasks.end_the_loop.enqueue(how)
    processes.until_runs(1, ending.id)
    later = async_tasks.record_context.enqueue(1)
    processes.until_gone([later])
    gate.touch()
    processes.until_gone([waiting])
    processes.until_state(ending, "gone" if how == "stop" else "dead")
    assert "stopped the event loop that all jobs share. It was started again." in worker.output
    assert {run["attempt"] for run in processes.runs()} == {1}


def test_as_many_plain_functions_as_the_pool_is_large_run_at_once(processes: Processes, gate: Path) -> None:
    jobs = [tasks.wait_for.enqueue(str(gate)) for _ in range(60)]
    processes.worker("--pool=asyncio", "--concurrency=60")
    processes.until_runs(60)
    gate.touch()
    processes.until_gone(jobs)


def test_a_stopped_worker_interrupts_running_jobs(processes: Processes, gate: Path) -> None:
    processes.configure(TASK_MODULES=["tests.sample_app.async_tasks"], GRACE=0)
    waiting = async_tasks.wait_for.enqueue(str(gate))
    worker = processes.worker("--pool=asyncio")
    processes.until_runs(1)
    assert worker.end() == 0
    assert waiting.refresh().state in ("ready", "scheduled")


def test_a_suspect_runs_in_a_process_of_its_own(processes: Processes, gate: Path) -> None:
    processes.configure(TASK_MODULES=["tests.sample_app.async_tasks"], LEASE=1)
    job = async_tasks.wait_for.enqueue(str(gate))
    first = processes.worker("--pool=asyncio")
    processes.until_runs(1)
    first.kill()
    second = processes.worker("--pool=asyncio")
    runs = processes.until_runs(2, job.id)
    assert runs[1]["pid"] not in (first.pid, second.pid)
    gate.touch()
    processes.until_gone([job])


def test_a_worker_ends_when_a_coroutine_blocks_its_loop_beyond_its_limit(processes: Processes, gate: Path) -> None:
    processes.configure(LEASE=1)
    worker = processes.worker("--pool=asyncio", "--concurrency=2")
    async_tasks.block_the_loop.using(hard_timeout=0.2).enqueue(str(gate))
    processes.until_runs(1)
    beside = async_tasks.record.enqueue()
    assert worker.wait() == 1
    assert "jobs beyond their hard limits keep all others from going on" in worker.output
    # Once, with the place in the task.
    assert worker.output.count("A job has blocked the event loop for ") == 1
    assert "block_the_loop() (" in worker.output
    gate.touch()
    processes.worker("--pool=asyncio")
    processes.until_gone([beside])
