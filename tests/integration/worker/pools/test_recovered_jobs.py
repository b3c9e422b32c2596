"""Recovered jobs of real workers: they run in at most two processes, each started before an attempt is counted."""

from pathlib import Path

import pytest
from redis import Redis

from tests.inspection import inspection
from tests.sample_app import async_tasks, tasks
from tests.subprocesses import Command, Processes

#: Pool, its concurrency, and the child processes that it has without recovered jobs.
POOLS = [("threads", 20, 0), ("asyncio", 20, 0), ("processes", 3, 3)]
#: Processes for recovered jobs, whatever the pool and its size.
MAX_PROCESSES = 2


def children_of(worker: Command) -> set[int]:
    """Return the processes that a worker started for tasks."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            line = (stat.parent / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        # Python starts one more process, its resource tracker.
        if int(parent) == worker.pid and state != "Z" and b"resource_tracker" not in line:
            found.add(int(stat.parent.name))
    return found


@pytest.mark.parametrize(("pool", "size", "own"), POOLS, ids=lambda value: str(value))
def test_jobs_of_a_crash_run_in_two_processes(
    processes: Processes, client: Redis, gate: Path, pool: str, size: int, own: int
) -> None:
    processes.configure(TASK_MODULES=["tests.sample_app.tasks", "tests.sample_app.async_tasks"], LEASE=1)
    options = f"--pool={pool}", f"--concurrency={size}"
    first = processes.worker(*options)
    task = async_tasks.wait_for if pool == "asyncio" else tasks.wait_for
    jobs = [task.enqueue(str(gate)) for _ in range(size)]
    processes.until_runs(size, patience=60)
    first.kill()
    second = processes.worker(*options)
    most = 0

    def recovered_run() -> bool:
        nonlocal most
        most = max(most, len(children_of(second)))
        return len(processes.runs()) >= size + MAX_PROCESSES

    processes.until(recovered_run, what="recovered jobs to run", patience=60)
    # The others wait, their attempts are not counted, and new jobs run meanwhile.
    again = processes.runs()[size:]
    assert {run["pid"] for run in again} <= children_of(second)
    processes.until_gone([tasks.record.enqueue()])
    assert client.zcard(processes.keys.recovered("default")) == size - MAX_PROCESSES
    gate.touch()
    lookup = inspection()

    def all_gone() -> bool:
        nonlocal most
        most = max(most, len(children_of(second)))
        return not client.hlen(processes.keys("jobs"))

    processes.until(all_gone, what="all to end", patience=90)
    assert most <= MAX_PROCESSES + own
    assert lookup.counts().dead == 0
    # One attempt in the worker that crashed, one in a child process: none was counted before its code began.
    assert all(len(processes.runs(job.id)) == 2 for job in jobs)
    assert second.end() == 0


def test_a_drained_worker_runs_recovered_jobs_too(processes: Processes, client: Redis, gate: Path) -> None:
    processes.configure(LEASE=1)
    first = processes.worker()
    job = tasks.wait_for.enqueue(str(gate))
    processes.until_runs(1)
    first.kill()
    gate.touch()
    processes.dispatcher()
    processes.until(lambda: client.zcard(processes.keys.recovered("default")), what="the job to come back")
    drained = processes.worker("--drain")
    assert drained.wait() == 0
    assert job.refresh().state == "gone"


def test_a_forwarder_forwards_recovered_jobs_like_all_others(processes: Processes, client: Redis, gate: Path) -> None:
    processes.configure(LEASE=1)
    first = processes.worker()
    tasks.wait_for.enqueue(str(gate))
    processes.until_runs(1)
    first.kill()
    forwarder = processes.worker("--pool=forwarder", "--forward-to=stream")
    processes.until(lambda: client.exists(processes.keys("forwarded")), what="the job to be forwarded")
    assert not children_of(forwarder)
