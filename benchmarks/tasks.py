"""Tasks of the benchmarks."""

import os
import time
from typing import Any

from django_delayq import delayed_task

_ledger: int | None = None


@delayed_task
def noop(*args: Any, **kwargs: Any) -> None:
    """Do nothing."""


@delayed_task
def note_start(number: int, due_us: int) -> None:
    """Write down job, due time and start (µs since the epoch), in one append."""
    global _ledger
    started_us = time.time_ns() // 1_000
    if _ledger is None:
        _ledger = os.open(os.environ["DELAYQ_BENCH_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(_ledger, f"{number} {due_us} {started_us}\n".encode())
