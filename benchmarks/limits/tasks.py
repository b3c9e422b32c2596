"""Tasks: each run appends its value, when it was claimed, began and ended (µs; the first by Redis's clock)."""

import time

from benchmarks.local.run_log import record
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
    record(f"{value} {run[0].claimed_us} {began} 0 {run[0].lease.hex()}")
    if seconds:
        time.sleep(seconds)
    record(f"{value} {run[0].claimed_us} {began} {time.time_ns() // 1_000} {run[0].lease.hex()}")
