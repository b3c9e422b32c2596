"""Stopping: a running job is asked to stop, by whatever pool it runs in, and does not run again."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from django_delayq.job.progress import Progress
from django_delayq.task.handle import JobHandle
from tests.one_by_one import one_by_one
from tests.sample_app import stoppable_tasks, tasks
from tests.subprocesses import Processes

MODULES = ["tests.sample_app.stoppable_tasks"]
#: No heartbeat but the first comes in the time of a test, and no lease ends.
LONG_LEASE = 3_600
POOLS = ["threads", "processes", "asyncio"]


@pytest.fixture
def start(processes: Processes) -> Callable[..., Any]:
    """Start a worker with a pool; a stop reaches it by its own notification alone."""

    def start(pool: str, *options: Any, **delayq: Any) -> Any:
        processes.configure(**{"TASK_MODULES": MODULES, "LEASE": LONG_LEASE, **delayq})
        return processes.worker(f"--pool={pool}", *options)

    return start


def running(processes: Processes, task: Any, *args: Any, **options: Any) -> JobHandle:
    """Enqueue a job whose result is kept, and wait until its code runs."""
    job = task.using(store_result=60, **options).enqueue(*args)
    processes.until_runs(1, job.id)
    return job


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize(("how", "state"), [("raise", "cancelled"), ("return", "done")])
def test_code_that_looks_ends_though_every_slot_is_busy(
    processes: Processes, start: Callable[..., Any], pool: str, how: str, state: str
) -> None:
    start(pool, "--concurrency=1")
    job = running(processes, stoppable_tasks.until_stopped, how)
    waiting = tasks.record.enqueue("next")
    assert job.stop(grace=60)
    assert processes.until_state(job, "cancelled", "done") == state
    processes.until_gone([waiting])
    assert len(processes.runs(job.id)) == 1
    assert not job.stop()


def test_a_child_that_does_not_look_is_killed_after_its_grace(
    processes: Processes, start: Callable[..., Any], gate: Path
) -> None:
    start("processes", "--concurrency=2")
    innocent, deaf = (running(processes, stoppable_tasks.deaf, str(gate)) for _ in range(2))
    assert deaf.stop(grace=0.2)
    processes.until_state(deaf, "cancelled")
    assert innocent.refresh().state == "claimed"
    assert [len(processes.runs(job.id)) for job in (deaf, innocent)] == [1, 1]


def test_a_later_stop_may_shorten_the_grace(processes: Processes, start: Callable[..., Any], gate: Path) -> None:
    start("processes", "--concurrency=1")
    job = running(processes, stoppable_tasks.deaf, str(gate))
    assert job.stop(grace=3_600)
    assert job.stop(grace=0)
    processes.until_state(job, "cancelled")


def test_a_later_stop_may_lengthen_the_grace(processes: Processes, start: Callable[..., Any], gate: Path) -> None:
    start("processes", "--concurrency=2")
    patient, other = (running(processes, stoppable_tasks.deaf, str(gate)) for _ in range(2))
    assert patient.stop(grace=2)
    assert patient.stop(grace=3_600)
    # The watching thread ends them in the order of their limits.
    assert other.stop(grace=2)
    processes.until_state(other, "cancelled")
    assert patient.refresh().state == "claimed"
    gate.touch()
    processes.until_state(patient, "cancelled")
    assert processes.events("end")


def test_a_coroutine_that_refuses_to_end_gets_the_longer_grace(processes: Processes, start: Callable[..., Any]) -> None:
    start("asyncio", "--concurrency=2")
    patient, other = (running(processes, stoppable_tasks.wait_forever, False) for _ in range(2))
    assert patient.stop(grace=2)
    assert patient.stop(grace=3_600)
    assert other.stop(grace=2)
    processes.until_state(other, "cancelled")
    assert patient.refresh().state == "claimed"


@pytest.mark.parametrize("cleans_up", [True, False])
def test_a_coroutine_is_cancelled_and_may_clean_up(
    processes: Processes, start: Callable[..., Any], cleans_up: bool
) -> None:
    start("asyncio", "--concurrency=1")
    job = running(processes, stoppable_tasks.wait_forever, cleans_up)
    assert job.stop(grace=3_600 if cleans_up else 0.2)
    processes.until_state(job, "cancelled")
    [cancelled] = processes.events("cancelled")
    assert cancelled["asked"]
    assert len(processes.events("cleaned up")) == cleans_up


def test_a_thread_that_does_not_look_runs_on_and_is_not_retried(
    processes: Processes, start: Callable[..., Any], gate: Path
) -> None:
    start("threads")
    job = running(processes, stoppable_tasks.deaf, str(gate))
    other = running(processes, stoppable_tasks.until_stopped, "raise")
    assert job.stop(grace=0)
    assert other.stop(grace=0)
    # The worker has read both stops.
    processes.until_state(other, "cancelled")
    assert job.refresh().state == "claimed"
    gate.touch()
    processes.until_state(job, "cancelled")
    assert len(processes.runs(job.id)) == 1


def test_a_stop_reaches_a_worker_whose_notification_was_lost(
    processes: Processes, start: Callable[..., Any], client: Redis
) -> None:
    start("threads", LEASE=1)
    job = running(processes, stoppable_tasks.until_stopped, "raise")
    record = client.hget(processes.keys("claim_records"), job._raw_id)
    # As `stop.lua` writes it, but without its notification.
    client.hset(processes.keys("claim_records"), job._raw_id, record[:32] + b"\1" + (2**50).to_bytes(8))
    processes.until_state(job, "cancelled")


def test_a_stop_survives_the_worker(processes: Processes, start: Callable[..., Any], gate: Path) -> None:
    processes.dispatcher()
    worker = start("threads", LEASE=1)
    job = running(processes, stoppable_tasks.deaf, str(gate))
    assert job.stop()
    worker.kill()
    start("threads", LEASE=1)
    processes.until_state(job, "cancelled")
    assert len(processes.runs(job.id)) == 1


def test_a_shutdown_does_not_run_a_stopped_job_again(
    processes: Processes, start: Callable[..., Any], gate: Path
) -> None:
    worker = start("threads", GRACE=0)
    job = running(processes, stoppable_tasks.deaf, str(gate))
    assert job.stop()
    assert worker.end() == 0
    assert job.refresh().state == "cancelled"


def test_a_waiting_job_is_cancelled(processes: Processes) -> None:
    later, ready = tasks.noop.after(60).enqueue(), tasks.noop.enqueue()
    assert later.stop() and ready.stop()
    assert [job.refresh().state for job in (later, ready)] == ["gone", "gone"]


@pytest.mark.parametrize("pool", POOLS)
def test_the_last_progress_is_stored_within_a_moment(
    processes: Processes, start: Callable[..., Any], gate: Path, pool: str
) -> None:
    start(pool)
    job = running(processes, stoppable_tasks.advance, str(gate))
    processes.until(lambda: job.refresh().progress == Progress(0.5, "5,000 of 10,000"), what="the last progress")
    gate.touch()
    processes.until_state(job, "done")
    assert job.progress is None


def test_a_busy_worker_is_quiet_at_once(processes: Processes, start: Callable[..., Any], gate: Path) -> None:
    worker = start("threads", "--concurrency=1")
    job = running(processes, tasks.wait_for, str(gate))
    with processes.client() as client:
        [worker_id] = client.hkeys(processes.keys("worker_names"))
    assert one_by_one().quiet(worker_id, by="ann")
    processes.until(lambda: "(quiet)" in worker.output, what="the worker to be quiet")
    waiting = tasks.record.enqueue("not taken")
    gate.touch()
    processes.until_state(job, "done")
    assert waiting.refresh().state == "ready"
