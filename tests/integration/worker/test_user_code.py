"""User code around jobs: receivers and log handlers that misbehave do not end a worker."""

import contextlib
import threading
from collections.abc import Callable
from types import ModuleType

import pytest
from django.core.management import CommandError

from django_delayq.management.starting import run_services
from django_delayq.processes.service import Service
from tests.subprocesses import Processes
from tests.unit.processes.test_service import ScriptedRunnable

PATIENCE = 30.0
BROKEN_LOG = """
import logging, sys
from django_delayq import delayed_task
from tests.sample_app.tasks import note_run

class Broken(logging.Handler):
    def emit(self, record):
        raise ConnectionError("the log's database is away")

# Not in the process of the tests, which imports this too.
if {"run_worker", "run_dispatcher"} & set(sys.argv):
    logging.getLogger("django_delayq").addHandler(Broken())
    logging.getLogger("django_delayq").setLevel("DEBUG")

@delayed_task
def record(number):
    note_run(number=number)
"""
CLOSED_STDERR = """
import sys
from django_delayq import delayed_task
from tests.sample_app.tasks import note_run

@delayed_task
def record(number):
    sys.stderr.close()
    note_run(number=number)
"""
RECEIVERS = """
import sys, time
from django.db import connection
from django_delayq import delayed_task
from django_delayq.signals import job_finished, job_started
from tests.sample_app.tasks import note, note_run

@delayed_task
def record(number):
    note_run(number=number)

def count(job, **_):
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    note("received", number=job.args[0])
    # As after a restart of the database.
    connection.connection.close()

def leave(**_):
    sys.exit(3)

# Not in the process of the tests, which imports this too.
if "run_worker" in sys.argv:
    job_finished.connect(count)
    job_finished.connect(leave)
"""


STRIKING = """
import ctypes, threading, time
from django_delayq import delayed_task
from tests.sample_app.tasks import note_run

class Late(BaseException):
    pass

@delayed_task
def strike_heartbeats():
    note_run()
    for thread in threading.enumerate():
        if thread.name == "delayq-heartbeats":
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Late))
    # It runs until its process ends: a shorter job would hide a worker that lives on.
    time.sleep(600)
"""


@pytest.mark.parametrize("module", [BROKEN_LOG, CLOSED_STDERR], ids=["handler", "stderr"])
def test_a_log_that_fails_stops_no_shard(
    module: str, processes: Processes, task_module: Callable[[str, str], ModuleType]
) -> None:
    processes.configure(SHARDS=2)
    tasks = task_module("broken_log_tasks", module)
    worker = processes.worker("--with-dispatcher", "--concurrency", 2)
    jobs = [tasks.record.enqueue(number) for number in range(20)]
    assert len({job.id[-1] for job in jobs}) == 2, "both shards have jobs"
    processes.until_gone(jobs)
    later = [tasks.record.using(delay=0.1).enqueue(number) for number in range(20)]
    processes.until_gone(later)
    assert worker.running


def test_a_worker_that_can_renew_no_lease_ends(
    processes: Processes, task_module: Callable[[str, str], ModuleType]
) -> None:
    processes.configure(TASK_MODULES=["striking_tasks"], LEASE=1)
    tasks = task_module("striking_tasks", STRIKING)
    worker = processes.worker()
    tasks.strike_heartbeats.enqueue()
    processes.until(lambda: not worker.running, what="the worker to end")
    assert worker.wait() == 1
    assert "The thread of Heartbeats of" in worker.output


def test_receivers_have_a_sound_connection_and_end_no_worker(
    processes: Processes, task_module: Callable[[str, str], ModuleType], tmp_path: object
) -> None:
    tasks = task_module("receiver_tasks", RECEIVERS)
    worker = processes.worker("--concurrency", 1, DELAYQ_TEST_DB_DEFAULT=f"{tmp_path}/receivers.sqlite3")
    for number in range(4):
        processes.until_gone([tasks.record.enqueue(number)])
    processes.until(lambda: len(processes.events("received")) == 4, what="a signal of every attempt")
    assert [event["number"] for event in processes.events("received")] == [0, 1, 2, 3]
    assert worker.end() == 0


def test_signals_that_wait_are_sent_before_the_process_ends(
    processes: Processes, task_module: Callable[[str, str], ModuleType]
) -> None:
    # A receiver slower than the jobs, so that signals still wait when the last job has ended.
    slow = RECEIVERS.replace(
        "def count(job, **_):", "def count(job, **_):\n    time.sleep(0.02)\n    note('received')\n    return"
    )
    tasks = task_module("slow_receiver_tasks", slow)
    tasks.record.enqueue_many([(number,) for number in range(100)])
    drained = processes.worker("--drain")
    assert drained.wait() == 0
    assert len(processes.events("received")) == 100


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_process_whose_service_died_ends() -> None:
    class Dies(ScriptedRunnable):
        def close(self) -> None:
            raise SystemExit("nobody expects this")

    lives, dies = ScriptedRunnable(*[0.01] * 100_000), Dies(None)
    services = [Service(lives, name="Worker of a"), Service(dies, name="Worker of b")]
    errors: list[str] = []

    def run() -> None:
        try:
            run_services(services, [])
        except CommandError as error:
            errors.append(str(error))

    # Not in the main thread, whose signal handlers belong to pytest.
    thread = threading.Thread(target=run)
    thread.start()
    thread.join(PATIENCE)
    # The error ends the thread too, and Python prints it: this must happen within this test.
    for each in threading.enumerate():
        if each.name == "Worker of b":
            each.join(PATIENCE)
    with contextlib.ExitStack() as stack:
        stack.callback(lives.shut)
        stack.callback(dies.shut)
        assert not thread.is_alive()
    assert lives.stops and "Worker of b" in errors[0]
