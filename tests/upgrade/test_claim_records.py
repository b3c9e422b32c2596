"""Claim records with a stop and progress, beside processes of the older release: they run and settle jobs as before."""

import json
from collections.abc import Callable
from pathlib import Path

from django_delayq import JobHandle, get_store
from django_delayq.job.progress import Progress
from django_delayq.store.records import ClaimRecord
from tests.sample_app import tasks
from tests.subprocesses import Command, Processes

READ_CLAIM = """
import json, sys
import django_delayq
from django_delayq.store.records import ClaimRecord
record = ClaimRecord.unpack(sys.stdin.buffer.read())
print(json.dumps([django_delayq.__file__, record.claimed_us, record.rank]))
"""
RUN = "import sys; from django.core.management import execute_from_command_line; execute_from_command_line(sys.argv)"


def older(processes: Processes, folder: Path, command: str) -> Command:
    """Start a command of the older package."""
    return processes.start_program(RUN, command, cwd=folder)


def test_the_older_reader_reads_the_fixed_part(
    in_older_package: Callable[[str, bytes], str], older_package: Path
) -> None:
    fixed = bytes(16) + (123).to_bytes(8) + (456).to_bytes(8)
    progress = Progress(0.5, "half").pack()
    stop, due = (789).to_bytes(8), (987).to_bytes(8)
    for rest in (b"\0", b"\1" + stop, b"\2" + due, b"\3" + stop + due):
        record = fixed + rest + progress
        assert ClaimRecord.unpack(record) == ClaimRecord(123, 456, 789 if stop in rest else None, progress)
        imported, *read = json.loads(in_older_package(READ_CLAIM, record))
        assert imported.startswith(str(older_package))
        assert read == [123, 456]


def test_an_older_worker_ends_a_job_that_was_asked_to_stop(
    processes: Processes, older_package: Path, gate: Path
) -> None:
    worker = older(processes, older_package, "run_worker")
    processes.until_known(worker)
    job = tasks.wait_for.enqueue(str(gate))
    processes.until_runs(1)
    assert job.stop(grace=0)
    assert get_store().lookup(0).find(job._raw_id).stops
    gate.touch()
    processes.until_gone([job])
    assert worker.end() == 0


def older_processes_run_again(job: JobHandle, processes: Processes, older_package: Path, gate: Path) -> None:
    """Start a dispatcher and a worker of the older release; they run a job that waits for the gate once more."""
    older(processes, older_package, "run_dispatcher")
    processes.until_known(older(processes, older_package, "run_worker"))
    processes.until_runs(2)
    gate.touch()
    processes.until_gone([job])


def test_an_older_worker_and_dispatcher_run_a_stopped_job_of_a_lost_worker_as_any_other(
    processes: Processes, older_package: Path, gate: Path
) -> None:
    processes.configure(LEASE=1)
    lost = processes.worker()
    job = tasks.wait_for.enqueue(str(gate))
    processes.until_runs(1)
    lost.kill()
    assert job.stop(grace=0)
    older_processes_run_again(job, processes, older_package, gate)


def test_an_older_dispatcher_takes_back_a_job_that_was_run_before_it_was_due(
    processes: Processes, older_package: Path, gate: Path
) -> None:
    """It makes it ready at once, as it did before: only a newer one knows its due time."""
    processes.configure(LEASE=1)
    job = tasks.wait_for.after(days=9).enqueue(str(gate))
    command = processes.start("delayq_run", job.id, "--yes")
    processes.until_runs(1)
    command.kill()
    older_processes_run_again(job, processes, older_package, gate)


def test_a_newer_dispatcher_lets_it_wait_beside_an_older_worker(
    processes: Processes, older_package: Path, gate: Path
) -> None:
    processes.configure(LEASE=1)
    job = tasks.wait_for.after(days=9).enqueue(str(gate))
    due = job.due
    command = processes.start("delayq_run", job.id, "--yes")
    processes.until_runs(1)
    command.kill()
    processes.dispatcher()
    processes.until_known(older(processes, older_package, "run_worker"))
    processes.until_state(job, "scheduled", "ready")
    assert (job.state, job.due) == ("scheduled", due)


def test_a_newer_dispatcher_reclaims_what_an_older_worker_held(
    processes: Processes, older_package: Path, gate: Path
) -> None:
    # No lease ends before its worker is killed.
    processes.configure(LEASE=3)
    worker = older(processes, older_package, "run_worker")
    processes.until_known(worker)
    first, second = (tasks.wait_for.enqueue(str(gate)) for _ in range(2))
    processes.until_runs(2)
    assert first.stop(grace=0)
    worker.kill()
    processes.dispatcher()
    processes.worker()
    processes.until_runs(2, second.id)
    gate.touch()
    processes.until_gone([first, second])
    assert len(processes.runs(first.id)) == 1
