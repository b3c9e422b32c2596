"""Services: the server and the processes of a benchmark of this project alone."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import django

from benchmarks.venvs import ROOT
from django_delayq.testing.local_redis import LocalRedisServer

MANAGE = (sys.executable, "-m", "django")


@contextmanager
def project(settings: str) -> Iterator[Path]:
    """Start a server, set up Django with a module of settings, and yield the file in which tasks record their runs."""
    with LocalRedisServer() as server, project_on(server.url, settings) as path:
        yield path


@contextmanager
def project_on(url: str, settings: str) -> Iterator[Path]:
    """Do as `project()`, on a server that runs already."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "record")
        path.touch()
        os.environ |= {"BENCH_URL": url, "BENCH_RECORD": str(path), "PYTHONPATH": str(ROOT)}
        os.environ["DJANGO_SETTINGS_MODULE"] = settings
        django.setup()
        yield path


@contextmanager
def running(commands: Sequence[Sequence[str]]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run processes during the block, and yield them."""
    processes = [subprocess.Popen(command) for command in commands]
    try:
        yield processes
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(30)


def value_at(values: Sequence[float], share: float) -> float:
    """Return the value that a share of the sorted values does not exceed; NaN if there are none."""
    return values[min(int(share * len(values)), len(values) - 1)] if values else float("nan")
