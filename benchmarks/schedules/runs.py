"""Runs: what the processes append of each run of a job, in a few µs."""

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from struct import Struct
from typing import NamedTuple

_RUN = Struct("<IQ")


class Run(NamedTuple):
    """One run of a job."""

    number: int
    #: µs since the epoch.
    began_us: int


def record(run: Run) -> None:
    """Append a run in one write, so that processes do not mix theirs."""
    os.write(_file(), _RUN.pack(*run))


def runs(path: Path) -> Iterator[Run]:
    """Yield the runs of a file."""
    return map(Run._make, _RUN.iter_unpack(path.read_bytes()))


def count_runs(path: Path) -> int:
    """Return how many runs a file has."""
    return path.stat().st_size // _RUN.size


# Open as long as the process runs: when 100,000 jobs are due in one second, opening it for each would count.
@cache
def _file() -> int:
    return os.open(os.environ["BENCH_RECORD"], os.O_WRONLY | os.O_APPEND)
