"""Misbehaving tasks: whatever they do to their process, each of their jobs ends, and no other job fails.

A worker keeps working, or exits as a whole and is restarted by its supervisor.
"""

import pytest

from django_delayq import JobHandle, enqueue_many
from tests.sample_app import misbehaving
from tests.sample_app.misbehaving import ASYNC, CRIPPLING, DEADLY, PLAIN
from tests.subprocesses import Command, Processes

#: Seconds for all kinds of misbehaviour on one pool. Processes take 21 s alone, and 115 s beside five such tests on two
#: cores.
PATIENCE = 300.0


@pytest.mark.parametrize("pool", ["threads", "asyncio", "processes"])
def test_each_misbehaving_job_ends_and_no_other_job_fails(processes: Processes, pool: str) -> None:
    # A worker that one of these jobs delays keeps its leases. A stuck job is retried elsewhere only after its lease.
    processes.configure(TASK_MODULES=["tests.sample_app.misbehaving"], LEASE=3, GRACE=1)
    names = [*PLAIN, *sorted(DEADLY.keys() - CRIPPLING if pool == "processes" else ())]
    jobs = {name: misbehaving.misbehave.job(name) for name in names}
    jobs |= {f"{name}, async": misbehaving.misbehave_async.job(name) for name in ASYNC}
    run(processes, jobs, pool)


@pytest.mark.parametrize("pool", ["threads", "asyncio"])
def test_worker_whose_descriptors_are_closed_keeps_working_or_exits(processes: Processes, pool: str) -> None:
    processes.configure(TASK_MODULES=["tests.sample_app.misbehaving"], LEASE=1, GRACE=1)
    run(processes, {"close": misbehaving.misbehave.job("close_all_descriptors")}, pool)


def test_each_job_ends_beside_crippled_processes(processes: Processes) -> None:
    """A job may fail in a process that another job crippled, or be killed there at its hard limit."""
    processes.configure(TASK_MODULES=["tests.sample_app.misbehaving"], LEASE=3, GRACE=1)
    # A kept result tells a job that succeeded from one that was lost.
    jobs = [misbehaving.misbehave.using(store_result=True).job(name) for name in sorted(CRIPPLING)]
    others = [
        task.using(store_result=True, hard_timeout=3).job()
        for _ in range(20)
        for task in (misbehaving.innocent, misbehaving.innocent_async)
    ]
    enqueue_many([*jobs, *others])
    worker = processes.start("run_worker", "--pool=processes", "--concurrency=4", "--with-dispatcher")
    processes.until_empty(patience=PATIENCE)
    assert worker.running
    assert {str(job.refresh().state) for job in (*jobs, *others)} <= {"done", "dead"}


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["threads", "asyncio"])
@pytest.mark.parametrize("name", sorted(DEADLY))
def test_worker_keeps_working_or_exits(processes: Processes, pool: str, name: str) -> None:
    processes.configure(TASK_MODULES=["tests.sample_app.misbehaving"], LEASE=1, GRACE=1)
    run(processes, {name: misbehaving.misbehave.job(name)}, pool)


def run(processes: Processes, jobs: dict[str, JobHandle], pool: str) -> None:
    """Run these jobs, each beside two well-behaved ones, with a worker that is restarted when it ends."""
    innocents = [
        task.job() for _ in range(max(3, len(jobs))) for task in (misbehaving.innocent, misbehaving.innocent_async)
    ]
    mixed = [job for trio in zip(jobs.values(), innocents[::2], innocents[1::2], strict=False) for job in trio]
    enqueue_many([*mixed, *innocents[len(jobs) * 2 :]])
    workers: list[Command] = []

    def ended() -> bool:
        if not workers or not workers[-1].running:
            workers.append(processes.start("run_worker", f"--pool={pool}", "--concurrency=8", "--with-dispatcher"))
        return not client.hlen(processes.keys("jobs"))

    with processes.client() as client:
        try:
            processes.until(ended, what=f"all to end on {pool}", patience=PATIENCE)
        finally:
            left = [name for name, job in jobs.items() if job.refresh().state not in ("gone", "dead")]
            assert not left
        assert not [job for job in innocents if job.refresh().state != "gone"]
        # A worker that is shutting down may still run. Then the next worker runs this job.
        last = misbehaving.innocent.enqueue()
        processes.until(ended, what=f"one more to end on {pool}")
        assert last.refresh().state == "gone"
    print(pool, len(jobs), "jobs,", len(workers), "workers")
