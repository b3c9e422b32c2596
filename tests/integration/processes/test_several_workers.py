"""Several workers: `run_worker --processes` restarts the workers it started, and they end with it."""

import os
import signal
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from redis import Redis

from tests.sample_app import tasks
from tests.subprocesses import Processes


def workers(processes: Processes, client: Redis) -> set[int]:
    """Return the process ids of the workers that Redis knows."""
    return {int(name.rpartition(b":")[2]) for name in client.hvals(processes.keys("worker_names"))}


def test_several_workers_share_the_jobs_and_end_with_their_parent(
    processes: Processes, client: Redis, gate: Path
) -> None:
    parent = processes.start("run_worker", "--processes=3", "--concurrency=1", "--with-dispatcher")
    known = processes.until(lambda: len(found := workers(processes, client)) == 3 and found, what="three workers")
    # Each worker has one slot, and each job keeps its slot.
    jobs = [tasks.wait_for.using(delay=0.01).enqueue(str(gate)) for _ in range(3)]
    assert {run["pid"] for run in processes.until_runs(3)} == known
    assert parent.pid not in known
    gate.touch()
    processes.until_gone(jobs)
    assert parent.end() == 0
    assert not client.exists(processes.keys("workers"))


def test_a_killed_worker_is_started_again(processes: Processes, client: Redis) -> None:
    processes.start("run_worker", "--processes=2")
    first = processes.until(lambda: len(found := workers(processes, client)) == 2 and found, what="two workers")
    os.kill(min(first), signal.SIGKILL)
    processes.until(lambda: len(workers(processes, client)) == 3, what="another worker")


def test_workers_end_when_their_parent_is_killed(processes: Processes, client: Redis, gate: Path) -> None:
    parent = processes.start("run_worker", "--processes=2")
    processes.until(lambda: len(workers(processes, client)) == 2, what="two workers")
    os.kill(parent.pid, signal.SIGKILL)
    processes.until(lambda: not client.exists(processes.keys("workers")), what="the workers to deregister")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--processes=0"], "--processes must be at least 1, got 0"),
        (["--processes=2", "--drain"], "--drain is for one process"),
        (["--processes=2", "--reload"], "--reload is for one process"),
    ],
)
def test_options_that_do_not_go_together_are_refused(delayq_settings: object, options: list[str], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        call_command("run_worker", *options)
