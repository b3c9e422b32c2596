"""Shutdown: a job that a stopped worker interrupts does not continue beside its next run."""

import signal
from pathlib import Path

import pytest

from tests.sample_app import tasks
from tests.subprocesses import Command, Processes

#: Seconds that the first attempt may run beside the second; with a wrong order of the steps it is at least 1 s.
OVERLAP = 0.5
#: Makes the steps of a wrong end take twenty seconds, so that no slow machine looks like one.
SLOW_STEPS = "from django_delayq.processes import shutdown\nshutdown._END_TIMEOUT = shutdown._OPTIONAL_TIMEOUT = 20.0\n"
#: Seconds that a job ticks if nothing ends it.
LONG = 60


def overlap(processes: Processes, stopped: Command) -> float:
    """Return the longest time, in seconds, that a job of a stopped worker ran beside its second run."""
    begun = {run["id"]: run["at"] for run in processes.runs() if run["recovered"]}
    return max(each["at"] - begun[each["id"]] for each in processes.events("tick") if each["pid"] == stopped.pid)


@pytest.mark.parametrize("options", [(), ("--with-dispatcher",)])
@pytest.mark.parametrize("shards", [1, 4])
def test_the_process_ends_as_soon_as_its_jobs_are_interrupted(
    processes: Processes, shards: int, options: tuple[str, ...]
) -> None:
    processes.configure(SHARDS=shards, GRACE=1)
    processes.dispatcher()
    stopped = processes.worker(*options)
    # One for each thread: with four shards, almost certainly each shard's worker interrupts some.
    tasks.tick.enqueue_many([(LONG,)] * 8)
    processes.until_runs(8)
    processes.worker()
    assert stopped.end() == 0
    processes.until(lambda: len([run for run in processes.runs() if run["recovered"]]) == 8, what="second runs")
    assert overlap(processes, stopped) < OVERLAP
    assert "did not end in time" not in stopped.output


def test_an_exit_handler_that_hangs_does_not_let_a_job_continue(processes: Processes) -> None:
    stopped = worker_with(processes, "import atexit, time\natexit.register(time.sleep, 60)\n")
    tasks.tick.enqueue(LONG)
    processes.until_runs(1)
    processes.worker()
    assert stopped.end() == 0
    processes.until_runs(2)
    # Exit handlers have half a second; with a wrong end 20 s.
    assert overlap(processes, stopped) < 10


def worker_with(processes: Processes, module: str) -> Command:
    """Start a dispatcher, and a worker that imports a module of that text; its jobs are interrupted at once."""
    (processes.folder / "hanging.py").write_text(SLOW_STEPS + module)
    processes.dispatcher()
    processes.configure(GRACE=0, TASK_MODULES=("hanging",))
    worker = processes.worker()
    processes.configure(TASK_MODULES=())
    return worker


def worker_with_a_receiver_that_hangs(processes: Processes) -> Command:
    return worker_with(
        processes,
        "import time\n"
        "from django_delayq.signals import job_finished\n"
        # The process has to end in the middle of this sleep.
        "def hang(**kwargs):\n"
        f"    time.sleep({LONG})\n"
        "job_finished.connect(hang, weak=False)\n",
    )


def test_a_worker_that_waits_for_receivers_ends_too(processes: Processes) -> None:
    stopped = worker_with_a_receiver_that_hangs(processes)
    ticking = tasks.tick.enqueue(LONG)
    processes.until_runs(1)
    # More than may wait for receivers at once, so that the worker's loop is blocked.
    tasks.record.enqueue_many([("short",)] * 1_500)
    processes.until(lambda: "this worker waits for them" in stopped.output, what="it to wait")
    assert stopped.end() == 0
    assert "were not announced" in stopped.output
    assert ticking.refresh().state == "ready"


def test_a_receiver_that_hangs_does_not_let_a_job_continue(processes: Processes) -> None:
    stopped = worker_with_a_receiver_that_hangs(processes)
    tasks.tick.enqueue(LONG)
    processes.until_runs(1)
    processes.worker()
    assert stopped.end() == 0
    processes.until_runs(2)
    # The receiver has half a second to end; with a wrong end 20 s.
    assert overlap(processes, stopped) < 10


def test_a_process_whose_service_died_does_not_wait_for_threads_of_its_jobs(processes: Processes) -> None:
    processes.configure(GRACE=0)
    worker = processes.worker("--pool", "asyncio")
    tasks.linger.enqueue(10 * LONG)
    processes.until_runs(1)
    tasks.end_services.enqueue()
    # Long before the job ends.
    assert worker.wait() == 1
    assert "Ended because the thread of Worker of" in worker.output


@pytest.mark.parametrize("shards", [1, 2])
def test_printed_output_is_not_lost_with_an_interrupted_job(processes: Processes, gate: Path, shards: int) -> None:
    # The thread that flushes has 25 ms, which a busy machine may need for its start.
    module = "from django_delayq.processes import shutdown\nshutdown._SHORT_OPTIONAL_TIMEOUT = 30.0\n"
    (processes.folder / "patient.py").write_text(module)
    processes.configure(SHARDS=shards, GRACE=0, TASK_MODULES=("patient",))
    stopped = processes.worker(PYTHONUNBUFFERED="")
    printing, running = tasks.say.enqueue("printed by a task"), tasks.wait_for.enqueue(str(gate))
    processes.until_gone([printing])
    processes.until_runs(1, running.id)
    stopped.send(signal.SIGINT)
    assert stopped.wait() == 0
    assert "printed by a task" in stopped.output
    assert running.refresh().state in ("scheduled", "ready")
