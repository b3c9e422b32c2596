"""Stored jobs, as the tests of tasks read them."""

from datetime import UTC, datetime, timedelta

from django_delayq import get_job
from django_delayq.job.job import Job
from django_delayq.task.handle import JobHandle


def stored(handle: JobHandle) -> Job:
    """Return the job as Redis has it."""
    found = get_job(handle.id)
    assert found and found.job
    return found.job


def now() -> datetime:
    return datetime.now(UTC)


def due_of(handle: JobHandle) -> datetime:
    due = handle.refresh().due
    assert due is not None
    return due


HOUR = timedelta(hours=1)
