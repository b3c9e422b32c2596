"""Dispatching: run_worker with a dispatcher of its own, with --reload, and without any dispatcher."""

import os
import re
import signal
from pathlib import Path

import pytest
from redis import Redis

from django_delayq import enqueue_many
from tests.sample_app import tasks
from tests.subprocesses import Command, Processes, listeners


def dispatchers_started(worker: Command) -> list[int]:
    return [int(pid) for pid in re.findall(r"^Dispatcher (\d+) serves", worker.output, re.MULTILINE)]


def test_a_child_dispatcher_is_restarted_and_ends_with_the_worker(processes: Processes, client: Redis) -> None:
    worker = processes.worker("--with-dispatcher")
    [first] = processes.until(lambda: dispatchers_started(worker), what="the dispatcher")
    os.kill(first, signal.SIGKILL)
    processes.until(lambda: len(dispatchers_started(worker)) > 1, what="the next dispatcher")
    # The worker listens to the notifications of its queues, the dispatcher to its own.
    processes.until(lambda: listeners(client) == 2, what="both to listen")
    job = tasks.record.after(0.1).enqueue()
    processes.until_gone([job])
    assert worker.end() == 0
    second = dispatchers_started(worker)[-1]
    assert second != first
    with pytest.raises(ProcessLookupError):
        os.kill(second, 0)
    assert "Traceback" not in worker.output
    assert "Fatal" not in worker.output


def test_a_child_dispatcher_ends_with_a_killed_worker(processes: Processes, client: Redis) -> None:
    worker = processes.worker("--with-dispatcher")
    processes.until(lambda: listeners(client) == 2, what="both to listen")
    worker.kill()
    processes.until(lambda: listeners(client) == 0, what="the dispatcher's end")


def test_ctrl_c_in_a_terminal_ends_both(processes: Processes, client: Redis) -> None:
    worker = processes.worker("--with-dispatcher")
    processes.until(lambda: listeners(client) == 2, what="both to listen")
    worker.send_all(signal.SIGINT)
    assert worker.wait() == 0
    processes.until(lambda: listeners(client) == 0, what="the dispatcher's end")
    assert "Traceback" not in worker.output
    assert "Fatal" not in worker.output


def test_reload_restarts_when_code_changes_after_running_jobs_have_ended(processes: Processes, gate: Path) -> None:
    module = processes.folder / "reloaded_tasks.py"
    module.write_text(
        "from django.utils.autoreload import file_changed\n"
        "from tests.sample_app.tasks import note\n"
        "note('loaded')\n"
        "def changed(**kwargs):\n"
        "    note('changed')\n"
        "file_changed.connect(changed)\n"
    )
    processes.configure(TASK_MODULES=("reloaded_tasks",))
    worker = processes.worker("--reload")
    job = tasks.wait_for.enqueue(str(gate))
    [run] = processes.until_runs(1)

    # The reloader does not notice a change before its first scan, so the change is repeated.
    def seen() -> bool:
        newer = module.stat().st_mtime + 1
        os.utime(module, (newer, newer))
        return bool(processes.events("changed"))

    processes.until(seen, what="the change to be seen")
    later = tasks.record.enqueue()
    gate.touch()
    processes.until_gone([job, later])
    events = [(event["word"], event["pid"] == run["pid"]) for event in processes.events()]
    # The parent process of the reloader loads the code too.
    assert [event for event in events if event != ("loaded", False)] == [
        ("loaded", True),
        ("run", True),
        ("changed", True),
        ("end", True),
        ("run", False),
    ]
    assert events.index(("end", True)) < len(events) - 2
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0


def test_without_a_dispatcher_an_idle_worker_promotes(processes: Processes) -> None:
    processes.configure(LEASE=2)
    processes.worker()
    job = tasks.record.after(0.1).enqueue()
    processes.until_gone([job])


def test_without_a_dispatcher_a_busy_worker_promotes(processes: Processes) -> None:
    # Its sweep is 1 s: 2 s after its last promotion it learns that no dispatcher promotes.
    processes.configure(LEASE=2)
    naps = enqueue_many([tasks.nap.job(0.05) for _ in range(150)])
    processes.worker("--concurrency", 1)
    processes.until_runs(1)
    urgent = tasks.record.using(priority=100, delay=0.1).enqueue("urgent")
    processes.until_runs(1, urgent.id)
    assert naps[-1].refresh().state == "ready"


def test_without_a_dispatcher_expired_leases_are_reclaimed(processes: Processes, gate: Path) -> None:
    processes.configure(LEASE=2)
    lost = processes.worker()
    job = tasks.wait_for.enqueue(str(gate))
    processes.until_runs(1)
    lost.kill()
    gate.touch()
    processes.worker()
    processes.until_gone([job])
    assert [run["attempt"] for run in processes.runs()] == [1, 2]
