"""Processes: management commands as real processes of one test, and the ledger that their tasks write to.

Each command leads a process group, and the `with` block kills all groups. Each wait is for a condition; it fails after
`PATIENCE`, far later than a working engine needs.
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
from django_delayq.exceptions import StoreError
from django_delayq.store.keys import Keys
from django_delayq.store.nodes.connections import Connections
from django_delayq.store.shard import Shard
from django_delayq.store.store import get_store
from tests.warm_process import ROOT, ForkedCommand, WarmProcess, python_path

#: Seconds after which a wait fails.
PATIENCE = 45.0
#: Makes a process of a test print the stacks of its threads, each below a line that contains `_STACK`.
STACKS, _STACK = signal.SIGUSR2, "(most recent call first):"
#: Most characters of a process's output that a failed wait shows.
_SHOWN = 12_000
#: How the names of commands begin that `Processes` forks.
FORKED = ("run_worker", "run_dispatcher", "delayq_")
T = TypeVar("T")
Process = subprocess.Popen[bytes] | ForkedCommand


def until(condition: Callable[[], T], *, what: str, patience: float = PATIENCE, details: Callable[[], str] = str) -> T:
    """Call `condition` until it returns something true, and return that.

    Raises AssertionError after `patience` seconds, with `what` was waited for and the `details`.
    """
    deadline = time.monotonic() + patience
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"Waited {patience:g} s in vain for {what}.\n{details()}")
        time.sleep(0.01)
    return found


class Command:
    """One Python process, mostly a management command, in a process group of its own."""

    def __init__(self, process: Process, log: Path) -> None:
        self.process, self.log = process, log

    @property
    def pid(self) -> int:
        """The process's id."""
        return self.process.pid

    @property
    def output(self) -> str:
        """Everything it has printed so far."""
        return self.log.read_text(errors="replace")

    @property
    def failures(self) -> list[str]:
        """The lines with a traceback that is not that of a failed attempt, which the log shows below its record."""
        record, found = "", []
        for line in self.output.splitlines():
            if not line.startswith(" "):
                record = line
            if "Traceback (most recent call last)" in line and " Job " not in record:
                found.append(record)
        return found

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def dump_stacks(self) -> None:
        """Make the process print the stacks of all its threads, if it knows how and has not ended."""
        with suppress(OSError):
            caught = Path(f"/proc/{self.pid}/status").read_text().partition("SigCgt:")[2].split()[0]
            # Without a handler, the signal would end the process.
            if int(caught, 16) >> (STACKS - 1) & 1:
                printed = self.output.count(_STACK)
                self.send(STACKS)
                with suppress(AssertionError):
                    until(lambda: self.output.count(_STACK) > printed, what="its stacks", patience=2)

    @property
    def stopped(self) -> bool:
        """Whether SIGSTOP has stopped it."""
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def send(self, number: signal.Signals) -> None:
        """Send a signal to this process only."""
        self.process.send_signal(number)

    def send_all(self, number: signal.Signals) -> None:
        """Send a signal to the whole process group, as a terminal or systemd does."""
        os.killpg(self.pid, number)

    def kill(self) -> None:
        """Kill this process by SIGKILL, but not its children."""
        self.process.kill()
        self.process.wait()

    def wait(self) -> int:
        """Wait for its end and return its exit code."""
        until(lambda: not self.running, what=f"the end of {self.process.args}", details=lambda: self.output)
        return self.process.returncode

    def end(self) -> int:
        """Send SIGTERM, wait for the end, and return the exit code."""
        self.send(signal.SIGTERM)
        return self.wait()

    def close(self) -> None:
        """Kill the whole process group."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()
        if self.process.stdin:
            self.process.stdin.close()


class Processes:
    """The processes of one test. Their project is tests.settings, with DELAYQ and TASKS as the test sets them."""

    def __init__(self, folder: Path, settings: Any, warm: WarmProcess | None = None) -> None:
        self.folder, self._settings = folder, settings
        #: Forks the commands, if there is one.
        self.warm = warm
        self._commands: list[Command] = []
        self._started = 0
        self._ledger = folder / "ledger"
        #: The events read so far. Reading the whole ledger at each call would cost the square of its length.
        self._events: list[dict[str, Any]] = []
        self._read_to = 0
        self.configure()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # All are killed before the first wait, so that none can react to the end of another.
        for command in self._commands:
            with suppress(ProcessLookupError):
                os.killpg(command.pid, signal.SIGKILL)
        for command in self._commands:
            command.close()

    def configure(self, **delayq: Any) -> None:
        """Change DELAYQ in this process and in every process that starts later."""
        self._settings.DELAYQ = {**self._settings.DELAYQ, **delayq}
        text = f"import faulthandler\nfaulthandler.register({int(STACKS)})\n"
        text += f"from tests.settings import *\nDELAYQ = {self._settings.DELAYQ!r}\nTASKS = {self._settings.TASKS!r}\n"
        (self.folder / "process_settings.py").write_text(text)

    @property
    def keys(self) -> Keys:
        """The key names of shard 0."""
        return Keys(get_config().prefix, 0)

    def client(self) -> Redis:
        """Return a client of the server that has shard 0; the caller closes it."""
        if isinstance(url := self._settings.DELAYQ["REDIS"], str) and "+cluster" not in url:
            return Redis.from_url(url, protocol=2)
        connections: Connections = get_store().shards[0].route.node.connections
        client: Redis = connections.client()
        return client

    # Starting

    def start(self, name: str, *options: Any, stdin: int | None = None, **environ: str) -> Command:
        """Start a management command and return without waiting.

        Commands of the package are forked, but not with `--reload`, an input, or a variable of Python's own.
        """
        special = stdin or "--reload" in options or any(each.startswith("PYTHON") for each in environ)
        warm = self.warm if name.startswith(FORKED) and not special else None
        return self._start(["-m", "django", name, *map(str, options)], environ=environ, stdin=stdin, warm=warm)

    def start_program(self, program: str, *arguments: str, cwd: Path) -> Command:
        """Start the text of a Python program in this project and return without waiting."""
        return self._start(["-c", program, *arguments], environ={}, cwd=cwd)

    def _start(
        self,
        arguments: list[str],
        *,
        environ: dict[str, str],
        stdin: int | None = None,
        cwd: Path = ROOT,
        warm: WarmProcess | None = None,
    ) -> Command:
        environ = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "process_settings",
            "PYTHONPATH": python_path(self.folder),
            "PYTHONUNBUFFERED": "1",
            "DELAYQ_TEST_LEDGER": str(self._ledger),
            **environ,
        }
        path = self.folder / f"command-{self._started}.log"
        self._started += 1
        with open(path, "ab") as log:
            if warm:
                process: Process = warm.start(arguments, environ=environ, log=log.fileno())
            else:
                process = subprocess.Popen(
                    [sys.executable, *arguments],
                    env=environ,
                    cwd=cwd,
                    stdin=subprocess.DEVNULL if stdin is None else stdin,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        self._commands.append(Command(process, path))
        return self._commands[-1]

    def worker(self, *options: Any, **environ: str) -> Command:
        """Start a worker and wait for its first round trip, but not with --drain or --reload."""
        worker = self.start("run_worker", *options, **environ)
        if "--drain" not in options and "--reload" not in options:
            self.until_known(worker)
        return worker

    def until_known(self, worker: Command) -> None:
        """Wait for a worker's first round trip. By then its signal handlers are installed."""
        with self.client() as client:
            self.until(
                lambda: any(name.endswith(b":%d" % worker.pid) for name in client.hvals(self.keys("worker_names"))),
                what="the worker's first round trip",
            )

    def dispatcher(self, *options: Any, stdin: int | None = None) -> Command:
        """Start a dispatcher and wait until it listens for notifications."""
        with self.client() as client:
            # The ids, not their number: another listener may end meanwhile.
            before = listening(client)
            dispatcher = self.start("run_dispatcher", *options, stdin=stdin)
            self.until(lambda: listening(client) - before, what="the dispatcher to listen")
        return dispatcher

    def forget(self, command: Command) -> None:
        """Do not kill this command at the end: it has ended, and another process may have its id."""
        self._commands.remove(command)

    # Watching

    def until(self, condition: Callable[[], T], *, what: str, patience: float = PATIENCE) -> T:
        """Do as `until` does; a failure shows the end of the ledger and of each process's output."""
        return until(condition, what=what, patience=patience, details=self._details)

    def events(self, word: str = "", *, start: int = 0) -> list[dict[str, Any]]:
        """Return the ledger's events from number `start` on; with `word`, only the events of that word."""
        if self._ledger.exists():
            with open(self._ledger, "rb") as ledger:
                ledger.seek(self._read_to)
                complete, _, _ = ledger.read().rpartition(b"\n")
            self._events += map(json.loads, complete.splitlines())
            self._read_to += len(complete) + bool(complete)
        return [event for event in self._events[start:] if not word or event["word"] == word]

    def runs(self, job_id: str = "") -> list[dict[str, Any]]:
        """Return the runs that have begun, in order; with `job_id`, only the runs of that job."""
        return [event for event in self.events("run") if not job_id or event["id"] == job_id]

    def until_runs(self, count: int, job_id: str = "", *, patience: float = PATIENCE) -> list[dict[str, Any]]:
        """Wait until `count` runs have begun, and return all runs."""

        def enough() -> list[dict[str, Any]]:
            runs = self.runs(job_id)
            return runs if len(runs) >= count else []

        return self.until(enough, what=f"{count} runs {job_id}", patience=patience)

    def until_state(self, job: Any, *states: str) -> str:
        """Wait until a job is in one of these states and return it."""

        def reached() -> str:
            state = str(job.refresh().state)
            return state if state in states else ""

        return self.until(reached, what=f"job {job.id} to be {' or '.join(states)}")

    def until_gone(self, jobs: Iterable[Any]) -> None:
        """Wait until all these jobs have ended. A dead letter has not."""
        for job in jobs:
            self.until_state(job, "gone")

    def until_empty(self, *, patience: float = PATIENCE) -> None:
        """Wait until no job is scheduled, ready or claimed. Dead letters may remain."""
        self.until(lambda: not any(map(_has_jobs, get_store().shards)), what="all jobs to end", patience=patience)

    def _details(self) -> str:
        ledger = "\n".join(map(str, self.events()[-20:]))
        for command in self._commands:
            command.dump_stacks()
        logs = "\n".join(f"-- {' '.join(c.process.args[3:])}: {c.output[-_SHOWN:]}" for c in self._commands)
        return f"The ledger ends with:\n{ledger}\nRedis has:\n{self._stored()}\n{logs}"

    def _stored(self) -> str:
        """Return the time of Redis, the small keys that say when something is due, and the number of keys' entries."""
        lines = []
        for shard in get_store().shards:
            with suppress(StoreError):
                client, keys = shard.client, shard.keys
                lines.append(f"{shard.label}: {client.time()}, next promotion {client.get(keys('next_promotion'))!r}")
                lines.append(f"next due {client.zrange(keys('next_due'), 0, 9, withscores=True)}")
                sizes = {"zset": client.zcard, "hash": client.hlen, "list": client.llen}
                for key in sorted(client.keys(f"{keys('')}*")):
                    size = sizes.get(client.type(key).decode())
                    lines += [f"{key.decode()}: {size(key)}"] if size else []
        return "\n".join(lines)


def _has_jobs(shard: Shard) -> bool:
    """Return whether a shard has jobs that have not ended; True if its server does not reply."""
    try:
        return bool(shard.execute("HLEN", shard.keys("jobs")))
    except StoreError:
        return True


def listeners(client: Redis) -> int:
    """Return the number of connections that wait for a notification of jobs."""
    return len(listening(client))


def listening(client: Redis) -> set[str]:
    """Return the ids of the connections that wait for a notification of jobs, not of stops."""
    return {each["id"] for each in client.client_list() if "b" in each["flags"] and each["cmd"] == "blpop"}
