"""delayq_run as a process: what it prints where, and its end by a signal."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from django_delayq import get_store
from django_delayq.management.operating import JOB_FAILED
from tests.sample_app import async_tasks, tasks
from tests.subprocesses import Command, Processes, python_path


@pytest.fixture(autouse=True)
def _project(processes: Processes) -> None:
    processes.configure(TASK_MODULES=["tests.sample_app.async_tasks"])


def run(processes: Processes, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, with a pipe each for its output and its errors."""
    project = {"DJANGO_SETTINGS_MODULE": "process_settings", "PYTHONPATH": python_path(processes.folder)}
    command = [sys.executable, "-m", "django", "delayq_run", *options, "--yes"]
    return subprocess.run(command, env={**os.environ, **project}, capture_output=True, text=True, timeout=60)


def test_json_is_all_that_is_on_standard_output(processes: Processes) -> None:
    job = tasks.say_by_all_means.enqueue("loud")
    ran = run(processes, job.id, "--json")
    assert ran.returncode == 0
    assert json.loads(ran.stdout)["outcome"] == "succeeded"
    assert ran.stderr.splitlines().count("loud") == 3


def test_without_json_a_task_prints_where_it_always_does(processes: Processes) -> None:
    job = tasks.say_by_all_means.enqueue("loud")
    ran = run(processes, job.id)
    assert ran.stdout.splitlines().count("loud") == 3
    assert f"Job {job.id}: succeeded" in ran.stdout


def started(processes: Processes, task: Any, path: Path, *, after: float = 0) -> tuple[Any, Command]:
    """Enqueue a job that waits for a file; return it and the command, whose task runs."""
    job = task.after(after).enqueue(str(path))
    command = processes.start("delayq_run", job.id, "--yes")
    processes.until_runs(1, job.id)
    return job, command


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("task", [tasks.wait_for, async_tasks.wait_for], ids=["plain", "coroutine"])
@pytest.mark.parametrize(("after", "state"), [(0, "ready"), (3_600, "scheduled")])
def test_a_signal_gives_the_job_back_uncounted(
    processes: Processes, tmp_path: Path, number: signal.Signals, task: Any, after: float, state: str
) -> None:
    job, command = started(processes, task, tmp_path / "file", after=after)
    command.send(number)
    assert command.wait() == JOB_FAILED
    assert "interrupted after" in command.output
    assert not command.failures
    assert job.refresh().state == state
    attempts = get_store().lookup(0).find(job._raw_id).attempts
    assert (attempts.ended, attempts.interruptions, attempts.recovered) == (0, 1, True)
    # The process has left, and the code does not run on.
    assert get_store().dashboard(0).snapshot().processes == []
    assert processes.events("end") == []


def test_a_job_that_ends_in_spite_of_the_signal_is_done(processes: Processes) -> None:
    job = tasks.catch_all.enqueue()
    command = processes.start("delayq_run", job.id, "--yes")
    processes.until_runs(1, job.id)
    command.send(signal.SIGTERM)
    assert command.wait() == 0
    assert "succeeded after" in command.output
    assert job.refresh().state == "gone"
