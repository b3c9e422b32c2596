"""Exit handlers: a worker and its child processes run them before they end, as the interpreter does."""

import signal
from pathlib import Path

import pytest

from tests.sample_app import tasks
from tests.subprocesses import Command, Processes

#: Lets idle children of a worker end in their own time. The two names are the same constant.
_PATIENT = """
from django_delayq.worker.pools import child, processes
child.END_TIMEOUT = processes.END_TIMEOUT = 40.0
"""
_WRITE = (
    _PATIENT
    + """
import atexit, os
from multiprocessing import active_children, parent_process

def write():
    # As the handler of multiprocessing does.
    for child in active_children():
        child.join()
    with open({path!r}, "a") as file:
        print("child" if parent_process() else "worker", os.getpid(), file=file)

atexit.register(write)
"""
)
#: A child process imports it for as long as it lives.
_STARTS_FOREVER = (
    _WRITE
    + """
import threading
if parent_process():
    open({path!r} + ".starting", "a").close()
    threading.Event().wait()
"""
)
_HANG = """
import atexit, threading

atexit.register(threading.Event().wait)
"""
_TRACE = (
    _PATIENT
    + """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

provider = TracerProvider()
# It sends every hour, or at the end.
processor = BatchSpanProcessor(
    ConsoleSpanExporter(out=open({path!r}, "a"), formatter=lambda span: span.name + chr(10)),
    schedule_delay_millis=3_600_000,
)
provider.add_span_processor(processor)
trace.set_tracer_provider(provider)
"""
)


def configure(processes: Processes, text: str, **delayq: object) -> Path:
    """Let each process of a worker import a module of that text; return the path that it may write to."""
    path = processes.folder / "written"
    (processes.folder / "at_exit.py").write_text(text.format(path=str(path)))
    processes.configure(TASK_MODULES=("at_exit",), **delayq)
    return path


def ended(path: Path, kind: str) -> set[int]:
    """Return the ids of the processes of a kind that have run their exit handlers."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {int(line.split()[1]) for line in lines if line.startswith(kind)}


def run_pids(processes: Processes) -> set[int]:
    """Return the ids of the processes that ran jobs."""
    return {run["pid"] for run in processes.runs()}


@pytest.mark.parametrize("pool", ["threads", "asyncio", "processes"])
@pytest.mark.parametrize("drain", [True, False], ids=["drained", "stopped"])
def test_a_worker_and_its_children_run_them(processes: Processes, pool: str, drain: bool) -> None:
    path = configure(processes, _WRITE)
    jobs = tasks.record.enqueue_many([(number,) for number in range(4)])
    worker = processes.worker("--pool", pool, "--concurrency", "2", *(["--drain"] if drain else []))
    processes.until_gone(jobs)
    if not drain:
        worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert ended(path, "worker") == {worker.pid}
    if pool == "processes":
        assert ended(path, "child") >= run_pids(processes)
    else:
        assert run_pids(processes) == {worker.pid}


def test_they_wait_for_no_child_that_is_starting(processes: Processes) -> None:
    path = configure(processes, _STARTS_FOREVER)
    worker = processes.worker("--pool", "processes", "--concurrency", "1")
    processes.until(Path(f"{path}.starting").exists, what="a child to start")
    assert worker.end() == 0
    assert ended(path, "worker") == {worker.pid}


def test_a_child_that_is_replaced_runs_them(processes: Processes) -> None:
    path = configure(processes, _WRITE)
    tasks.record.enqueue_many([(number,) for number in range(3)])
    worker = processes.worker("--pool", "processes", "--concurrency", "1", "--max-jobs", "1", "--drain")
    # It also waits for the last one.
    assert worker.wait() == 0
    pids = run_pids(processes)
    assert len(pids) == 3
    assert ended(path, "child") >= pids


def test_a_child_that_hangs_in_one_is_killed(processes: Processes) -> None:
    configure(processes, _HANG)
    jobs = tasks.record.enqueue_many([(number,) for number in range(2)])
    worker = processes.worker("--pool", "processes", "--concurrency", "1", "--max-jobs", "1")
    processes.until_gone(jobs)
    for pid in run_pids(processes):
        processes.until(lambda pid=pid: has_ended(pid), what=f"the end of {pid}")
    assert worker.running


def has_ended(pid: int) -> bool:
    """Whether a process runs no more; its exit code may be left."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def spans(worker: Command, path: Path) -> int:
    assert worker.wait() == 0
    return path.read_text().splitlines().count("process default")


@pytest.mark.parametrize("pool", ["threads", "processes"])
def test_the_last_spans_are_exported(processes: Processes, pool: str) -> None:
    middleware = ("django_delayq.middleware.opentelemetry.OpenTelemetryMiddleware",)
    path = configure(processes, _TRACE, MIDDLEWARE=middleware)
    tasks.record.enqueue_many([(number,) for number in range(4)])
    assert spans(processes.worker("--pool", pool, "--drain"), path) == 4
