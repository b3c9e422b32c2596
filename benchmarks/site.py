"""Site: a private Redis and the project's real processes, for as long as a benchmark lasts."""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import django

from django_delayq.private_redis import PrivateRedis


class Site:
    """A server, a ledger, and processes started by `run`."""

    def __init__(self, server: PrivateRedis, folder: Path) -> None:
        self.client: Any = server.client()
        self.ledger = folder / "ledger"
        self.ledger.touch()
        os.environ |= {
            "DELAYQ_BENCH_REDIS": server.url,
            "DELAYQ_BENCH_LEDGER": str(self.ledger),
            "DJANGO_SETTINGS_MODULE": "benchmarks.settings",
        }
        django.setup()
        self._processes: list[subprocess.Popen[bytes]] = []

    def run(self, *command: str) -> subprocess.Popen[bytes]:
        """Start a management command and return once it says that it serves."""
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", "django", *command], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
        )
        self._processes.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    def starts(self) -> list[tuple[int, int, int]]:
        """Return what started so far: job number, due, start, in µs since the epoch."""
        rows = [line.split() for line in self.ledger.read_text().splitlines()]
        return [(int(number), int(due), int(start)) for number, due, start in rows]

    def stop(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait()


@contextlib.contextmanager
def site() -> Iterator[Site]:
    """Set a site up and take it down."""
    with PrivateRedis() as server, tempfile.TemporaryDirectory() as folder:
        made = Site(server, Path(folder))
        try:
            yield made
        finally:
            made.stop()


def wait_until(condition: Callable[[], bool], *, seconds: float) -> None:
    """Wait for a condition; a benchmark that does not reach it has no result."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise SystemExit("The benchmark did not come to its end in time.")
        time.sleep(0.05)


def percentile(values: list[float], share: float) -> float:
    """Return the value below which `share` of the values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
