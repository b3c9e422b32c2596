"""Task: each run records when it began and when it was due."""

import time

from benchmarks.schedules.runs import Run, record
from django_delayq import current_job, delayed_task
from django_delayq.clock import moment_us


@delayed_task
def digest(number: int) -> None:
    """Record the run."""
    began_us, job = time.time_ns() // 1_000, current_job()
    assert job is not None
    record(Run(number, began_us, moment_us(job.due)))
