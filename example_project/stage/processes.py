"""Processes: dispatcher, worker and web server as children of the demo. None of them outlives it."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO

MANAGE = Path(__file__).resolve().parent.parent / "manage.py"

#: Seconds for an orderly end; what still runs then is killed.
PATIENCE = 5.0


class ChildEnded(Exception):
    """A process of the demo ended by itself."""


class Processes:
    """Named children, each with a log file, each the leader of a group of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._logs: list[IO[bytes]] = []

    def start(self, name: str, *arguments: str) -> int:
        """Start `manage.py` with these arguments; returns the process id."""
        log = open(self.log(name), "ab")  # noqa: SIM115  -- lives as long as the child
        self._logs.append(log)
        child = subprocess.Popen(
            [sys.executable, "-m", "stage.tether", str(MANAGE), *arguments],
            cwd=MANAGE.parent,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            # Ctrl-C in a terminal is for the demo, which then ends its children in good order.
            start_new_session=True,
        )
        self._running[name] = child
        return child.pid

    def kill(self, name: str) -> None:
        """End one by SIGKILL, with all its children: it gets no chance to tidy up."""
        child = self._running.pop(name)
        self._signal(child, signal.SIGKILL)
        child.wait()
        child.stdin.close()  # type: ignore[union-attr]

    def check(self) -> None:
        """Raise `ChildEnded` if one has ended by itself."""
        for name, child in self._running.items():
            if child.poll() is not None:
                raise ChildEnded(f"{name} ended with code {child.returncode}; its log ends with:\n{self.tail(name)}")

    def end(self) -> None:
        """End all in good order, and by force what does not listen. Safe to repeat."""
        for child in self._running.values():
            self._signal(child, signal.SIGTERM)
        for child in self._running.values():
            with suppress(subprocess.TimeoutExpired):
                child.wait(PATIENCE)
            # Also after an orderly end: a grandchild may be left in the group.
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
        """The last lines a child wrote."""
        return "\n".join(f"    {line}" for line in self.log(name).read_text(errors="replace").splitlines()[-lines:])

    @staticmethod
    def _signal(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, number)
