"""Task: each run records when it began."""

import time

from benchmarks.schedules.runs import Run, record
from django_delayq import delayed_task


@delayed_task
def digest(number: int) -> None:
    """Record the run."""
    record(Run(number, time.time_ns() // 1_000))
