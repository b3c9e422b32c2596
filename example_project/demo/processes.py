"""Processes: dispatcher, worker and web server as children of the demo, and its Redis. None outlives the demo."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from django_delayq.testing.local_redis import LocalRedisServer

MANAGE = Path(__file__).resolve().parent.parent / "manage.py"

#: Seconds for an orderly shutdown before SIGKILL.
STOP_LIMIT = 5.0


@contextmanager
def demo_redis() -> Iterator[str]:
    """Yield DELAYQ_REDIS_URL if it is set, else the URL of a private server that ends with the block."""
    if url := os.environ.get("DELAYQ_REDIS_URL"):
        yield url
        return
    with LocalRedisServer() as server:
        yield server.url


class ChildEnded(Exception):
    """A process of the demo ended unexpectedly."""


class Processes:
    """Named children, each with a log file and a process group of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._logs: list[IO[bytes]] = []

    def start(self, name: str, *arguments: str) -> int:
        """Start `manage.py` with these arguments. Returns the process id."""
        log = open(self.log(name), "ab")  # noqa: SIM115  -- open as long as the child runs
        self._logs.append(log)
        child = subprocess.Popen(
            [sys.executable, "-m", "demo.run_with_parent", str(MANAGE), *arguments],
            cwd=MANAGE.parent,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            # Ctrl-C in a terminal must reach the demo alone, which then shuts its children down in order.
            start_new_session=True,
        )
        self._running[name] = child
        return child.pid

    def kill(self, name: str) -> None:
        """Kill a child and its children by SIGKILL."""
        child = self._running.pop(name)
        self._signal(child, signal.SIGKILL)
        child.wait()
        child.stdin.close()  # type: ignore[union-attr]

    def check(self) -> None:
        """Raise `ChildEnded` if a child has ended that nobody stopped."""
        for name, child in self._running.items():
            if child.poll() is not None:
                raise ChildEnded(f"{name} ended with code {child.returncode}; its log ends with:\n{self.tail(name)}")

    def end(self) -> None:
        """Shut all children down in order; kill what still runs after `STOP_LIMIT`. Safe to repeat."""
        for child in self._running.values():
            self._signal(child, signal.SIGTERM)
        for child in self._running.values():
            with suppress(subprocess.TimeoutExpired):
                child.wait(STOP_LIMIT)
            # Also after an orderly shutdown: a grandchild may be left in the group.
            self._signal(child, signal.SIGKILL)
            child.wait()
            child.stdin.close()  # type: ignore[union-attr]
        self._running.clear()
        for log in self._logs:
            log.close()
        self._logs.clear()

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def tail(self, name: str, lines: int = 12) -> str:
        """Return the last lines of a child's log, indented."""
        return "\n".join(f"    {line}" for line in self.log(name).read_text(errors="replace").splitlines()[-lines:])

    @staticmethod
    def _signal(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, number)
