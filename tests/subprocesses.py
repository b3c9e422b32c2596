"""Processes: the two commands as real processes on a test's server, and the ledger in which their tasks write.

Nothing outlives its test: each command leads a process group, which ends with the `with` block. Every wait is for an
event and ends by a deadline that only a broken engine meets.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, TypeVar

from redis import Redis

from django_delayq.conf.settings import get_config
from django_delayq.store.keys import Keys

ROOT = Path(__file__).resolve().parent.parent
#: Seconds until a wait is given up.
PATIENCE = 45.0
T = TypeVar("T")


def until(look: Callable[[], T], *, what: str, patience: float = PATIENCE, told: Callable[[], str] = str) -> T:
    """Look until there is something true to see and return it; fail with `what`, and what `told` says, if not."""
    give_up = time.monotonic() + patience
    while not (seen := look()):
        if time.monotonic() > give_up:
            raise AssertionError(f"Waited {patience:g} s in vain for {what}.\n{told()}")
        time.sleep(0.01)
    return seen


def python_path(*folders: Path) -> str:
    """Return the PYTHONPATH of a process: the folders, then what this run was given, then where the tests are.

    A copy of the package that this run is about so comes before the one beside the tests.
    """
    given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return os.pathsep.join([*map(str, folders), *given, str(ROOT)])


class Command:
    """One Python process, mostly a management command, in a process group of its own."""

    def __init__(
        self, arguments: list[str], *, environ: dict[str, str], log: Path, stdin: int | None, cwd: Path = ROOT
    ) -> None:
        self.log = log
        with open(log, "ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, *arguments],
                env=environ,
                cwd=cwd,
                stdin=subprocess.DEVNULL if stdin is None else stdin,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process's id."""
        return self.process.pid

    @property
    def output(self) -> str:
        """What it has printed so far."""
        return self.log.read_text(errors="replace")

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    @property
    def stopped(self) -> bool:
        """Whether it is frozen, by SIGSTOP."""
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process alone."""
        self.process.send_signal(number)

    def send_all(self, number: signal.Signals) -> None:
        """Send a signal to the process and all it started, as a terminal or systemd does."""
        os.killpg(self.pid, number)

    def kill(self) -> None:
        """End the process by SIGKILL; what it started is not touched."""
        self.process.kill()
        self.process.wait()

    def wait(self) -> int:
        """Wait for its end and return its exit code."""
        until(lambda: not self.running, what=f"the end of {self.process.args}", told=lambda: self.output)
        return self.process.returncode

    def end(self) -> int:
        """Ask it to end, in good order, and return its exit code."""
        self.send(signal.SIGTERM)
        return self.wait()

    def close(self) -> None:
        """End the whole group."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()
        if self.process.stdin:
            self.process.stdin.close()


class Processes:
    """Start commands for one test, whose project is tests.settings with DELAYQ as given."""

    def __init__(self, folder: Path, settings: Any) -> None:
        self.folder, self._settings = folder, settings
        self._commands: list[Command] = []
        self._started = 0
        self._ledger = folder / "ledger"
        #: The ledger as far as it was read: reading all of it at every look would cost the square of its length.
        self._events: list[dict[str, Any]] = []
        self._read_to = 0
        self.configure()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # All are killed before any is waited for: none sees another's end and acts on it.
        for command in self._commands:
            with suppress(ProcessLookupError):
                os.killpg(command.pid, signal.SIGKILL)
        for command in self._commands:
            command.close()

    def configure(self, **delayq: Any) -> None:
        """Change DELAYQ in this process and in those started from now on."""
        self._settings.DELAYQ = {**self._settings.DELAYQ, **delayq}
        text = f"from tests.settings import *\nDELAYQ = {self._settings.DELAYQ!r}\nTASKS = {self._settings.TASKS!r}\n"
        (self.folder / "process_settings.py").write_text(text)

    @property
    def keys(self) -> Keys:
        """The key names of shard 0."""
        return Keys(get_config().prefix, 0)

    def client(self) -> Redis:
        """Return a plain client on the server in DELAYQ."""
        return Redis.from_url(self._settings.DELAYQ["REDIS"], protocol=2)

    # Starting

    def start(self, name: str, *options: Any, stdin: int | None = None, **environ: str) -> Command:
        """Start a management command; returns at once."""
        return self._start(["-m", "django", name, *map(str, options)], environ=environ, stdin=stdin)

    def start_program(self, program: str, *arguments: str, cwd: Path) -> Command:
        """Start a Python program of this project, given as text; returns at once."""
        return self._start(["-c", program, *arguments], environ={}, stdin=None, cwd=cwd)

    def _start(self, arguments: list[str], *, environ: dict[str, str], stdin: int | None, cwd: Path = ROOT) -> Command:
        known = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "process_settings",
            "PYTHONPATH": python_path(self.folder),
            "PYTHONUNBUFFERED": "1",
            "DELAYQ_TEST_LEDGER": str(self._ledger),
        }
        log = self.folder / f"command-{self._started}.log"
        self._started += 1
        self._commands.append(Command(arguments, environ={**known, **environ}, log=log, stdin=stdin, cwd=cwd))
        return self._commands[-1]

    def worker(self, *options: Any, **environ: str) -> Command:
        """Start a worker and return it once it took part in an exchange; one with --drain ends soon."""
        worker = self.start("run_worker", *options, **environ)
        if "--drain" not in options and "--reload" not in options:
            self.until_known(worker)
        return worker

    def until_known(self, worker: Command) -> None:
        """Wait until a worker took part in an exchange: by then it also heeds signals."""
        with self.client() as client:
            self.until(
                lambda: any(name.endswith(b":%d" % worker.pid) for name in client.hvals(self.keys("worker_names"))),
                what="the worker's first exchange",
            )

    def dispatcher(self, *options: Any, stdin: int | None = None) -> Command:
        """Start a dispatcher and return it once it listens to the alarm."""
        with self.client() as client:
            # Not their number: one of before may end meanwhile.
            before = listening(client)
            dispatcher = self.start("run_dispatcher", *options, stdin=stdin)
            self.until(lambda: listening(client) - before, what="the dispatcher to listen")
        return dispatcher

    def forget(self, command: Command) -> None:
        """Leave a command that has ended to itself: its process id may be somebody else's by now."""
        self._commands.remove(command)

    # Watching

    def until(self, look: Callable[[], T], *, what: str, patience: float = PATIENCE) -> T:
        """Look until there is something true to see; on failure tell what ledger and processes say."""
        return until(look, what=what, patience=patience, told=self._told)

    def events(self, word: str = "", *, start: int = 0) -> list[dict[str, Any]]:
        """Return the ledger's lines so far, from number `start` on, those with this word."""
        if self._ledger.exists():
            with open(self._ledger, "rb") as ledger:
                ledger.seek(self._read_to)
                whole, _, _ = ledger.read().rpartition(b"\n")
            self._events += map(json.loads, whole.splitlines())
            self._read_to += len(whole) + bool(whole)
        return [event for event in self._events[start:] if not word or event["word"] == word]

    def runs(self, job_id: str = "") -> list[dict[str, Any]]:
        """Return the begun runs, in order; of one job where its id is given."""
        return [event for event in self.events("run") if not job_id or event["id"] == job_id]

    def until_runs(self, count: int, job_id: str = "", *, patience: float = PATIENCE) -> list[dict[str, Any]]:
        """Wait for that many runs and return all there are."""

        def look() -> list[dict[str, Any]]:
            runs = self.runs(job_id)
            return runs if len(runs) >= count else []

        return self.until(look, what=f"{count} runs {job_id}", patience=patience)

    def until_state(self, job: Any, *states: str) -> str:
        """Wait until a job is in one of these states and return it."""

        def look() -> str:
            state = str(job.refresh().state)
            return state if state in states else ""

        return self.until(look, what=f"job {job.id} to be {' or '.join(states)}")

    def until_gone(self, jobs: Iterable[Any]) -> None:
        """Wait until all jobs have ended; a dead letter has not."""
        for job in jobs:
            self.until_state(job, "gone")

    def until_empty(self, *, patience: float = PATIENCE) -> None:
        """Wait until no job is left that has not ended; dead letters have."""
        with self.client() as client:
            self.until(lambda: not client.hlen(self.keys("jobs")), what="all jobs to end", patience=patience)

    def _told(self) -> str:
        ledger = "\n".join(map(str, self.events()[-20:]))
        logs = "\n".join(f"-- {' '.join(c.process.args[3:])}: {c.output[-2000:]}" for c in self._commands)
        return f"The ledger ends with:\n{ledger}\n{logs}"


def listeners(client: Redis) -> int:
    """Return how many connections are blocked on a bell or alarm."""
    return len(listening(client))


def listening(client: Redis) -> set[str]:
    """Return the numbers of these connections."""
    return {each["id"] for each in client.client_list() if "b" in each["flags"]}
