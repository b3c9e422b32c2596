"""Supervisor: runs management commands as child processes and restarts those that end; `run_worker --processes`."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any

from django_delayq.processes.backoff import backoff

#: Options that children get with the values that this process got.
_PASSED_ON = (
    "backend",
    "queues",
    "weights",
    "concurrency",
    "pool",
    "forward_to",
    "max_jobs",
    "max_memory",
    "verbosity",
    "settings",
    "pythonpath",
)
#: Variables of systemd. It listens to this process alone.
_NOT_PASSED_ON = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
#: Seconds before a restart: the first time, and at most. A command that ran longer than the latter starts over.
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0


def run_workers(options: dict[str, Any], *, ready: Callable[[], object], stopping: Callable[[], object]) -> None:
    """Keep `options["processes"]` workers running until SIGTERM or SIGINT, which is passed on to them.

    `ready` is called when they are started, `stopping` when they are stopped.
    """
    passed_on = [f"--{name.replace('_', '-')}={options[name]}" for name in _PASSED_ON if options.get(name) is not None]
    commands = [("run_worker", *passed_on)] * options["processes"]
    if options["with_dispatcher"]:
        commands.append(("run_dispatcher", *backend_option(options["backend"])))
    children = [SupervisedCommand(*command) for command in commands]

    def terminate(*_: Any) -> None:
        for child in children:
            child.terminate()
        stopping()

    old_handlers = {number: signal.signal(number, terminate) for number in (signal.SIGTERM, signal.SIGINT)}
    ready()
    # With a timeout: a signal that arrives just before a wait is handled only when that wait ends.
    while any(child.is_running(wait=0.2) for child in children):
        pass
    for number, handler in old_handlers.items():
        signal.signal(number, handler)


class SupervisedCommand:
    """A command that is restarted until stopped. It gets --until-stdin-closes, so it ends when this process does."""

    def __init__(self, *command: str) -> None:
        self._command = [sys.executable, *_entry_point(), *command, "--until-stdin-closes"]
        self._stopped = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name=f"delayq-{command[0]}", daemon=True)
        self._thread.start()

    def terminate(self) -> None:
        """Send SIGTERM to the command and do not restart it. Each call sends the signal again."""
        self._stopped.set()
        if self._process is not None:
            self._process.terminate()

    def is_running(self, *, wait: float = 0.0) -> bool:
        """Return whether the command has not ended after at most `wait` seconds."""
        self._thread.join(wait)
        return self._thread.is_alive()

    def stop(self) -> None:
        """Terminate the command and wait for its end."""
        self.terminate()
        self._thread.join()

    def _run(self) -> None:
        restarts = 0
        while not self._stopped.is_set():
            started_at = monotonic()
            # Our end of the pipe closes with this process, however it ends, so no child is left behind.
            environ = {name: value for name, value in os.environ.items() if name not in _NOT_PASSED_ON}
            with subprocess.Popen(self._command, stdin=subprocess.PIPE, env=environ) as process:
                self._process = process
                if self._stopped.is_set():
                    process.terminate()
                process.wait()
            restarts = 1 if monotonic() - started_at > _LONGEST_WAIT else restarts + 1
            self._stopped.wait(backoff(restarts, first=_FIRST_WAIT, longest=_LONGEST_WAIT))


def backend_option(alias: str | None) -> tuple[str, ...]:
    """Return the option that makes a command use the store of an alias in TASKS."""
    return () if alias is None else (f"--backend={alias}",)


def _entry_point() -> list[str]:
    """Return how this process was started: manage.py, or `python -m django`."""
    package = getattr(sys.modules["__main__"], "__spec__", None)
    if package is not None:
        return ["-m", (package.name.removesuffix(".__main__"))]
    return [sys.argv[0]]
