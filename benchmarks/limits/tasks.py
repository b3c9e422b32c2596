"""Tasks: each run appends its value, when it was claimed, began and ended (µs; the first by Redis's clock)."""

import os
import time

from django_delayq import delayed_task
from django_delayq.logs import current_run


@delayed_task(limit="rate")
def rated(value: int) -> None:
    """Record a run."""
    _record(value)


@delayed_task(limit=("values", lambda value: value))
def rated_by_value(value: int) -> None:
    """Record a run."""
    _record(value)


@delayed_task(limit="running")
def running(value: int) -> None:
    """Take 50 ms."""
    _record(value, seconds=0.05)


def _record(value: int, *, seconds: float = 0.0) -> None:
    run = current_run.get()
    assert run is not None
    began = time.time_ns() // 1_000
    # Written before it ends, too: a killed worker leaves the beginning alone.
    _append(f"{value} {run[0].claimed_us} {began} 0 {run[0].lease.hex()}\n")
    if seconds:
        time.sleep(seconds)
    _append(f"{value} {run[0].claimed_us} {began} {time.time_ns() // 1_000} {run[0].lease.hex()}\n")


def _append(line: str) -> None:
    file = os.open(os.environ["BENCH_RECORD"], os.O_WRONLY | os.O_APPEND)
    os.write(file, line.encode())
    os.close(file)
