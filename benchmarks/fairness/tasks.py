"""Tasks: a run of 5 ms that records when it began (µs), for which tenant and in which attempt; and an empty one."""

import time

from benchmarks.local.run_log import record
from django_delayq import current_job, delayed_task


@delayed_task(queue="mail")
def work() -> None:
    """Record a run."""
    job = current_job()
    assert job is not None
    record(f"{time.time_ns() // 1_000} {job.tenant} {job.attempt}")
    time.sleep(0.005)


@delayed_task(queue="mail")
def noop() -> None:
    """Do nothing."""
