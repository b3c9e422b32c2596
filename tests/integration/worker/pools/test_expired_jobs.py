"""Expired jobs in real workers of every pool: none of their code runs, they are counted, and their result says so."""

from time import time
from typing import Any

import pytest
from redis import Redis

from django_delayq import get_store
from django_delayq.exceptions import JobExpired
from django_delayq.job.job import State
from django_delayq.metrics import ALL_JOBS
from tests.one_by_one import one_by_one
from tests.sample_app import async_tasks, tasks
from tests.subprocesses import Processes

POOLS = {
    "threads": ("--pool=threads", "--concurrency=2"),
    "asyncio": ("--pool=asyncio",),
    "processes": ("--pool=processes", "--concurrency=2"),
    "forwarder": ("--pool=forwarder", "--forward-to=tests.sample_app.forward_target.accept"),
}


def over(processes: Processes, *jobs: Any) -> None:
    """Wait until all these jobs have expired."""
    latest = max(job.job.expiry.moment_us for job in jobs) / 1e6
    processes.until(lambda: time() > latest, what="the expiry")


@pytest.mark.parametrize("pool", POOLS)
def test_a_job_that_waited_behind_a_pause_does_not_run(processes: Processes, client: Redis, pool: str) -> None:
    processes.configure(TASK_MODULES=["tests.sample_app.tasks", "tests.sample_app.async_tasks"])
    operations, queue = one_by_one(), "mail"
    operations.pause(queue, by="a test")
    task = (async_tasks.record if pool == "asyncio" else tasks.record).using(queue=queue)
    late = task.using(expires=0.05, store_result=True).enqueue("late")
    dead = task.using(expires=0.05, on_expiry="dead").enqueue("dead")
    good = task.using(expires=600).enqueue("good")
    over(processes, late, dead)
    worker = processes.worker(*POOLS[pool])
    assert [job.refresh().state for job in (late, dead)] == ["ready", "ready"]
    operations.resume(queue)
    processes.until_gone([good])
    processes.until_state(late, "expired")
    processes.until_state(dead, "dead")
    with pytest.raises(JobExpired):
        _ = late.result
    ran = processes.events("accepted" if pool == "forwarder" else "run")
    assert [event["args"] for event in ran] == [["good"]]
    assert worker.end() == 0
    hour = get_store().dashboard(0).snapshot().hour(ALL_JOBS)
    assert (hour.done, hour.expired, hour.dead, hour.retried) == (1, 1, 1, 0)
    assert f"Job {late.id} of 'tests.sample_app.{'async_' * (pool == 'asyncio')}tasks.record'" in worker.output
    assert "expired before it could begin" in worker.output
    assert "django_delayq.exceptions.JobExpired: The job expired at " in worker.output


def test_a_job_that_waited_for_a_busy_worker_does_not_run(processes: Processes, gate: Any) -> None:
    first = tasks.wait_for.enqueue(str(gate))
    late = tasks.record.using(expires=0.2, store_result=True).enqueue("late")
    processes.worker("--concurrency=1")
    processes.until_state(first, "claimed")
    over(processes, late)
    gate.touch()
    processes.until_state(late, "expired")
    assert processes.runs(late.id) == []


def test_an_expired_job_lets_its_key_go(processes: Processes) -> None:
    operations = one_by_one()
    operations.pause("default", by="a test")
    task = tasks.record.using(key="k", expires=0.05)
    late = task.enqueue("late")
    over(processes, late)
    assert task.enqueue("again").id == late.id
    processes.worker()
    operations.resume("default")
    processes.until(lambda: late.refresh().state is State.GONE, what="the job to expire")
    next_one = task.using(expires=600).enqueue("next")
    assert next_one.created
    processes.until_gone([next_one])
    assert [run["args"] for run in processes.runs()] == [["next"]]
