"""Tasks that record their runs: id, shard, due time and begin (µs since the epoch)."""

import os
import struct
import time

from django_delayq import current_job, delayed_task

#: One record of a run: 24 digits of the id, the shard, when the job was due and when it began (µs).
RECORD = struct.Struct("<24sHqq")
_descriptor = os.open(os.environ["BENCH_RECORD"], os.O_WRONLY | os.O_APPEND)


@delayed_task
def record() -> None:
    """Record the run."""
    began, job = time.time_ns() // 1_000, current_job()
    number, _, shard = job.id.partition("-")
    due = int(job.due.timestamp() * 1_000_000)
    os.write(_descriptor, RECORD.pack(number.encode(), int(shard), due, began))


@delayed_task
def nothing() -> None:
    """Do nothing."""
