"""Limits in real workers and dispatchers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from django_delayq import get_job, limit, queue
from django_delayq.exceptions import JobDropped
from django_delayq.store.client.script import Script
from tests.sample_app import limit_tasks, tasks
from tests.subprocesses import Processes


@pytest.fixture(autouse=True)
def limited(processes: Processes) -> None:
    """Declare the limits in this process and in those of the test."""
    processes.configure(LIMITS=limit_tasks.LIMITS, TASK_MODULES=("tests.sample_app.limit_tasks",), LEASE=2)


def most_at_once(events: Sequence[dict[str, Any]], begin: str = "run") -> int:
    """Return how many of the events' intervals overlapped at most."""
    running = most = 0
    for event in events:
        running += {begin: 1, "end": -1}.get(event["word"], 0)
        most = max(most, running)
    return most


def test_no_more_jobs_run_than_the_limit_allows(processes: Processes) -> None:
    processes.dispatcher()
    for _ in range(2):
        processes.worker("--concurrency", 4)
    jobs = limit_tasks.hold.enqueue_many([()] * 30)
    processes.until_gone(jobs)
    assert len(processes.runs()) == 30
    assert most_at_once(processes.events()) == 2


def test_a_worker_lets_jobs_in_while_no_dispatcher_runs(processes: Processes) -> None:
    processes.worker("--concurrency", 4)
    jobs = limit_tasks.hold.enqueue_many([()] * 6)
    processes.until_gone(jobs)
    assert most_at_once(processes.events()) == 2


def test_the_slots_of_a_killed_worker_come_back(processes: Processes) -> None:
    processes.dispatcher()
    killed = processes.worker("--concurrency", 4)
    stuck = limit_tasks.hold.enqueue_many([(60,)] * 2)
    processes.until_runs(2)
    waiting = limit_tasks.hold.enqueue_many([()] * 4)
    processes.worker("--concurrency", 4)
    processes.until(lambda: limit("slots").counts()["waiting"] == 4, what="the others to wait")
    assert limit("slots").counts()["running"] == 2
    killed.kill()
    for job in stuck:
        job.stop()
    processes.until_gone(waiting)


def test_jobs_begin_at_the_pace_of_the_limit(processes: Processes) -> None:
    processes.dispatcher()
    processes.worker("--concurrency", 4)
    jobs = limit_tasks.pace.enqueue_many([()] * 10)
    processes.until_gone(jobs)
    moments = [run["at"] for run in processes.runs()]
    # 10 jobs in at least 9 intervals of 50 ms; the ledger's clock and Redis's may differ a little.
    assert moments[-1] - moments[0] > 0.4


def test_a_worker_that_drains_runs_jobs_one_after_the_other(processes: Processes) -> None:
    jobs = limit_tasks.hold.enqueue_many([(0.02,)] * 9)
    worker = processes.worker("--drain", "--concurrency", 4)
    assert worker.wait() == 0
    assert {job.refresh().state for job in jobs} == {"gone"}, worker.output
    assert most_at_once(processes.events()) == 2


def test_a_job_that_does_not_wait_is_dropped(processes: Processes, gate: Path) -> None:
    processes.dispatcher()
    processes.worker("--concurrency", 4)
    first = limit_tasks.only_one.enqueue(1, str(gate))
    processes.until_runs(1)
    second, other = limit_tasks.only_one.enqueue(1, str(gate)), limit_tasks.only_one.enqueue(2, str(gate))
    processes.until_state(second, "dropped")
    with pytest.raises(JobDropped):
        second.result  # noqa: B018
    gate.touch()
    for job in (first, other):
        processes.until_state(job, "done")
    assert len(processes.runs()) == 2


def test_a_paused_task_waits_and_others_run(processes: Processes) -> None:
    processes.dispatcher()
    processes.worker("--concurrency", 1)
    assert limit_tasks.plain.pause(by="alice")
    assert not limit_tasks.plain.pause(by="bob")
    assert limit_tasks.plain.is_paused
    jobs = limit_tasks.plain.enqueue_many([(number,) for number in range(5)])
    processes.until_gone([limit_tasks.hold.enqueue()])
    assert {job.refresh().state for job in jobs} == {"ready"}
    counts = queue("default").counts()
    assert (counts["ready"], counts["parked"], counts["oldest"]) == (5, 5, None)
    assert limit_tasks.plain.resume()
    assert not limit_tasks.plain.resume()
    processes.until_gone(jobs)
    assert [run["value"] for run in processes.runs() if "value" in run] == [0, 1, 2, 3, 4]


def test_a_paused_job_can_be_cancelled(processes: Processes) -> None:
    processes.dispatcher()
    processes.worker()
    limit_tasks.plain.pause()
    job = limit_tasks.plain.enqueue()
    with processes.client() as client:
        processes.until(lambda: client.zcard(processes.keys.parked("default")), what="the job to wait")
    assert job.cancel()
    limit_tasks.plain.resume()
    assert get_job(job.id) is None


def test_a_worker_without_a_free_slot_does_not_ask_for_jobs_with_limits(processes: Processes) -> None:
    processes.dispatcher()
    processes.worker("--pool", "threads", "--concurrency", 2)
    # After short jobs it asks for more of them than it has slots.
    processes.until_gone(tasks.noop.enqueue_many([()] * 300))
    jobs = limit_tasks.hold.using(limit="many").enqueue_many([(2.0,)] * 3)
    processes.until(lambda: len(processes.runs()) >= 2, what="two jobs to run")
    with processes.client() as other, other.monitor() as monitor:
        processes.until_gone(jobs)
        other.client_id()
        sent, exchange = 0, Script("settle_and_claim").sha
        for command in monitor.listen():
            if command["command"].startswith("CLIENT ID"):
                break
            sent += exchange in command["command"]
    # The ends of the jobs, and a few sweeps.
    assert 0 < sent < 50


def test_a_block_takes_a_slot_and_the_job_snoozes_without_one(processes: Processes, gate: Path) -> None:
    processes.dispatcher()
    processes.worker("--concurrency", 6)
    jobs = limit_tasks.block_until.enqueue_many([(str(gate),)] * 4)
    # One finds the limit closed, and begins anew.
    processes.until_runs(5)
    gate.touch()
    processes.until_gone(jobs)
    assert most_at_once(processes.events(), begin="inside") == 2
    # Those that found the limit closed began anew, which is no attempt.
    runs = processes.runs()
    assert len(runs) > 4
    assert {run["attempt"] for run in runs} == {1}


def test_a_block_waits_for_a_slot_as_long_as_it_is_told(processes: Processes) -> None:
    processes.dispatcher()
    processes.worker("--concurrency", 6)
    jobs = limit_tasks.block.enqueue_many([(0.1, 30.0)] * 6)
    processes.until_gone(jobs)
    assert most_at_once(processes.events(), begin="inside") == 2
    assert len(processes.runs()) == 6


def test_a_block_in_an_event_loop(processes: Processes) -> None:
    processes.dispatcher()
    processes.worker("--pool", "asyncio", "--concurrency", 6)
    jobs = limit_tasks.block_async.enqueue_many([()] * 6)
    processes.until_gone(jobs)
    assert most_at_once(processes.events(), begin="inside") == 2


def test_nobody_begins_while_the_other_side_is_overloaded(processes: Processes) -> None:
    processes.dispatcher()
    processes.worker("--concurrency", 1)
    processes.until_gone([limit_tasks.call_out.enqueue(1.5)])
    opens_at = limit("slots").counts()["opens_at"]
    jobs = limit_tasks.hold.enqueue_many([()] * 2)
    processes.until_gone(jobs)
    assert opens_at is not None
    assert min(run["at"] for run in processes.runs()[1:]) >= opens_at.timestamp() - 0.001
