"""Fork safety: a process that a task forked runs no jobs, and ends at the signals that workers handle."""

from pathlib import Path

import pytest

from django_delayq import enqueue_many
from tests.sample_app import tasks
from tests.subprocesses import Processes

POOLS = ["threads", "processes", "asyncio"]


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize(("how", "code"), [("end", 0), ("exit", 5), ("error", 1), ("mute", 0)])
def test_a_forked_process_that_returns_runs_no_other_job(processes: Processes, pool: str, how: str, code: int) -> None:
    jobs = enqueue_many(
        [
            *(tasks.record.job(number) for number in range(10)),
            tasks.fork_and_come_back.job(how),
            *(tasks.record.job(number) for number in range(10, 30)),
        ]
    )
    assert isinstance(jobs, list)
    worker = processes.worker(f"--pool={pool}", "--concurrency=1")
    processes.until_gone(jobs)
    assert sorted(run["args"][0] for run in processes.runs()) == list(range(30))
    assert len({run["pid"] for run in processes.runs()}) == 1
    assert [event["code"] for event in processes.events("left")] == [code]
    assert worker.end() == 0


@pytest.mark.parametrize("pool", POOLS)
def test_a_forked_process_ends_at_sigterm(processes: Processes, pool: str, gate: Path) -> None:
    job = tasks.end_child.enqueue()
    worker = processes.worker(f"--pool={pool}", "--concurrency=2")
    processes.until_gone([job])
    assert [event["code"] for event in processes.events("ended")] == [-15]
    # Only the child got the signal.
    beside = tasks.wait_for.enqueue(str(gate))
    processes.until_runs(1, beside.id)
    assert worker.running
    gate.touch()
    processes.until_gone([beside])
