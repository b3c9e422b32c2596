"""Drain: `run_worker --drain` runs the jobs that are ready or due, and ends."""

from pathlib import Path

from django_delayq import enqueue_many
from tests.integration.commands.run_worker.runs import values
from tests.sample_app import tasks
from tests.subprocesses import Processes


def test_drain_runs_ready_and_due_jobs_and_leaves_later_ones(processes: Processes) -> None:
    ready = enqueue_many([tasks.noop.using(queue=f"queue {n % 4}").job() for n in range(700)])
    due, later = [tasks.record.after(hours=1).enqueue(word) for word in ("due", "later")]
    assert due.reschedule(delay=0.2)
    processes.until(lambda: due.due is None or due.due.timestamp() < now(processes), what="the due time")
    assert due.refresh().state == "scheduled"  # only the worker can promote it
    assert processes.worker("--drain").wait() == 0
    assert values(processes) == ["due"]
    assert {job.refresh().state for job in ready} == {"gone"}
    assert later.refresh().state == "scheduled"


def now(processes: Processes) -> float:
    """Return the time of the server."""
    with processes.client() as client:
        seconds, micros = client.time()
    return float(seconds + micros / 1_000_000)


def test_drain_does_not_wait_for_later_retries(processes: Processes) -> None:
    job = tasks.later.enqueue(3600)
    assert processes.worker("--drain").wait() == 0
    assert job.refresh().state == "scheduled"
    assert len(processes.runs()) == 1


def test_drain_runs_jobs_of_its_own_queues_only(processes: Processes) -> None:
    other = tasks.record.using(queue="other").enqueue("other")
    late = tasks.record.using(queue="other").after(0.05).enqueue("late")
    tasks.record.using(queue="own").enqueue("own")
    assert processes.worker("--drain", "--queues", "own").wait() == 0
    assert values(processes) == ["own"]
    assert other.refresh().state == "ready"
    assert late.refresh().state in ("scheduled", "ready")


def test_drain_does_not_wait_for_jobs_that_other_workers_hold(processes: Processes, gate: Path) -> None:
    other = processes.worker()
    held = tasks.wait_for.enqueue(str(gate))
    processes.until_runs(1)
    assert processes.worker("--drain").wait() == 0
    assert held.refresh().state == "claimed"
    assert other.running


def test_drain_waits_for_running_jobs_and_runs_those_enqueued_meanwhile(processes: Processes, gate: Path) -> None:
    tasks.wait_for.enqueue(str(gate))
    worker = processes.worker("--drain", "--concurrency", 1)
    processes.until_runs(1)
    tasks.record.enqueue("came meanwhile")
    assert worker.running
    gate.touch()
    assert worker.wait() == 0
    assert [event["word"] for event in processes.events()] == ["run", "end", "run"]


def test_drain_ends_without_jobs(processes: Processes) -> None:
    assert processes.worker("--drain").wait() == 0
    assert processes.worker("--drain", "--queues", "empty").wait() == 0
