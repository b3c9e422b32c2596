"""RUN_IN_RUNSERVER: runserver's child process runs jobs, through reloads, and leaves nothing behind."""

import os
import random
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from django_delayq.exceptions import see
from tests.subprocesses import Command, Processes

NOTHING_RUNS = "troubleshooting#nothing-runs"
SETTINGS = """
from process_settings import *
DEBUG = {debug}
ALLOWED_HOSTS = ["127.0.0.1"]
ROOT_URLCONF = "kiosk.urls"
INSTALLED_APPS = [*INSTALLED_APPS, "kiosk"]
"""
TASKS = """
import os
import time
from django_delayq import current_job, delayed_task

VERSION = {version}

@delayed_task
def note(path):
    with open(path, "a") as file:
        file.write(f"{{VERSION}} {{current_job().attempt}}\\n")

@delayed_task
def hold(path):
    note(path)
    while not os.path.exists(f"{{path}}.gate"):
        time.sleep(0.02)
    note(path)
"""
URLS = """
from django.http import HttpResponse
from django.urls import path
from kiosk import tasks

def enqueue(request, name):
    job = getattr(tasks, name).after(0.01).enqueue(request.GET["path"])
    return HttpResponse(job.id)

urlpatterns = [path("<name>/", enqueue)]
"""


def free_port() -> int:
    """Return a free port that the system gives to no connection until runserver takes it."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port := random.randrange(lowest // 2, lowest)))
            return port


class Kiosk:
    """A project whose pages enqueue jobs, and its runserver."""

    def __init__(self, processes: Processes) -> None:
        self.processes, self.folder, self.ledger = processes, processes.folder / "kiosk", processes.folder / "notes"
        self.folder.mkdir()
        self._time = 1_000_000_000
        for name, text in {"__init__": "", "urls": URLS}.items():
            (self.folder / f"{name}.py").write_text(text)
        self.write_tasks(1)
        self.port = free_port()

    def write_tasks(self, version: int) -> None:
        """Write the code. A page's own bytecode is never taken for it: each version has another time."""
        path = self.folder / "tasks.py"
        path.write_text(TASKS.format(version=version))
        os.utime(path, (self._time, self._time))
        self._time += 1

    def reload(self, server: Command, version: int, *, before: Callable[[], object] = lambda: None) -> None:
        """Change the code until the reloader has seen it, which compares the times of files; then wait for the end."""
        reloads = server.output.count("changed, reloading")

        def seen() -> bool:
            self.write_tasks(version)
            return server.output.count("changed, reloading") > reloads or "The running jobs end first" in server.output

        self.processes.until(seen, what="the reloader", patience=60)
        before()
        started = "Watching for file changes"
        self.processes.until(lambda: server.output.count(started) == reloads + 2, what="a reload", patience=60)

    def run(self, *options: str, debug: bool = True) -> Command:
        """Start runserver."""
        (self.processes.folder / "kiosk_settings.py").write_text(SETTINGS.format(debug=debug))
        address = f"127.0.0.1:{self.port}"
        return self.processes.start("runserver", address, *options, DJANGO_SETTINGS_MODULE="kiosk_settings")

    def open_page(self, name: str) -> str:
        """Open a page, which enqueues a job; returns the job's id."""

        def opened() -> str:
            try:
                with urlopen(f"http://127.0.0.1:{self.port}/{name}/?path={self.ledger}", timeout=5) as response:
                    return str(response.read().decode())
            except (URLError, ConnectionError):
                return ""

        return self.processes.until(opened, what="the page", patience=60)

    def until_notes(self, *wanted: str) -> None:
        """Wait until the tasks have noted this: version of the code and number of the attempt."""

        def noted() -> bool:
            return self.ledger.exists() and self.ledger.read_text().splitlines() == list(wanted)

        self.processes.until(noted, what=f"the notes {wanted}", patience=60)


@pytest.fixture
def kiosk(processes: Processes) -> Kiosk:
    processes.configure(RUN_IN_RUNSERVER=True)
    return Kiosk(processes)


def children(command: Command) -> list[int]:
    """Return the processes of a command's group."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, group = stat.read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(group) == command.pid and state != "Z":
            found.append(int(stat.parent.name))
    return found


def test_jobs_run_in_runserver_and_after_each_change_of_the_code(kiosk: Kiosk) -> None:
    server = kiosk.run()
    kiosk.open_page("note")
    kiosk.until_notes("1 1")
    kiosk.reload(server, 2)
    kiosk.open_page("note")
    kiosk.until_notes("1 1", "2 1")
    server.send_all(signal.SIGINT)
    server.wait()
    kiosk.processes.until(lambda: not children(server), what="all processes to end")
    assert "Jobs run inside runserver" in server.output
    assert "Traceback" not in server.output


def test_a_running_job_ends_before_the_reload(kiosk: Kiosk) -> None:
    server = kiosk.run()
    kiosk.open_page("hold")
    kiosk.until_notes("1 1")
    kiosk.reload(server, 2, before=Path(f"{kiosk.ledger}.gate").touch)
    kiosk.open_page("note")
    kiosk.until_notes("1 1", "1 1", "2 1")
    assert "interrupted" not in server.output


def test_a_job_that_runs_at_ctrl_c_is_given_back_and_no_attempt_is_counted(kiosk: Kiosk) -> None:
    server = kiosk.run()
    kiosk.open_page("hold")
    kiosk.until_notes("1 1")
    server.send_all(signal.SIGINT)
    server.wait()
    Path(f"{kiosk.ledger}.gate").touch()
    kiosk.run()
    kiosk.until_notes("1 1", "1 1", "1 1")


@pytest.mark.parametrize(
    ("options", "debug", "words"), [((), False, "RUN_IN_RUNSERVER does nothing"), (("--noreload",), True, "")]
)
def test_without_debug_or_the_reloader_no_job_runs(
    kiosk: Kiosk, options: tuple[str, ...], debug: bool, words: str
) -> None:
    server = kiosk.run(*options, debug=debug)
    job = kiosk.open_page("note")
    kiosk.processes.until(lambda: words in server.output, what="the log line")
    with kiosk.processes.client() as client:
        assert client.hlen(kiosk.processes.keys("worker_names")) == 0
        assert client.hexists(kiosk.processes.keys("jobs"), bytes.fromhex(job[:24]))


def test_the_terminal_says_once_that_nobody_runs_the_jobs(kiosk: Kiosk) -> None:
    kiosk.processes.configure(RUN_IN_RUNSERVER=False)
    server = kiosk.run()
    kiosk.open_page("note")
    sentence = f"No dispatcher and no worker is running: start run_dispatcher and run_worker. {see(NOTHING_RUNS)}\n"
    kiosk.open_page("note")
    kiosk.processes.until(lambda: sentence in server.output, what="the reminder")
    assert server.output.count(NOTHING_RUNS.partition("#")[2]) == 1


def test_the_terminal_says_that_no_worker_serves_the_queue(kiosk: Kiosk) -> None:
    kiosk.processes.configure(RUN_IN_RUNSERVER=False)
    kiosk.processes.dispatcher()
    kiosk.processes.worker("--queues", "mail")
    server = kiosk.run()
    kiosk.open_page("note")
    sentence = f"No worker serves the queue 'default': start run_worker. {see(NOTHING_RUNS)}\n"
    kiosk.processes.until(lambda: sentence in server.output, what="the reminder")


def test_other_commands_and_the_parent_process_run_no_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    from django_delayq import apps

    asked: Callable[[], bool] = apps._is_in_runserver
    monkeypatch.setenv("RUN_MAIN", "true")
    monkeypatch.setattr("sys.argv", ["manage.py", "runserver", "8000"])
    assert asked()
    monkeypatch.setattr("sys.argv", ["manage.py", "run_worker", "--reload"])
    assert not asked()
    monkeypatch.setattr("sys.argv", ["manage.py", "runserver"])
    monkeypatch.delenv("RUN_MAIN")
    assert not asked()
