"""Encrypted jobs beside a worker of the older release: it leaves them to a newer one."""

from pathlib import Path

from tests.sample_app import tasks
from tests.subprocesses import Processes
from tests.upgrade.test_claim_records import older


def test_an_older_worker_leaves_an_encrypted_job_to_a_newer_one(
    processes: Processes, older_package: Path, gate: Path
) -> None:
    worker = older(processes, older_package, "run_worker")
    processes.until_known(worker)
    # The older release does not know the setting, and refuses to start with it.
    processes.configure(ENCRYPT=True)
    job = tasks.wait_for.enqueue(str(gate))
    processes.until_state(job, "scheduled")
    assert worker.end() == 0
    assert processes.runs() == []
    gate.touch()
    assert job.reschedule(delay=0)
    processes.worker("--with-dispatcher")
    processes.until_gone([job])
    [run] = processes.runs(job.id)
    assert run["attempt"] == 2
