"""Finding: the handles of jobs by their ids and by their unique keys."""

from collections.abc import Sequence

from django_delayq.conf.validators import check_name
from django_delayq.job.ids import from_text
from django_delayq.job.job import LimitUse, State
from django_delayq.store.client.async_calls import in_thread
from django_delayq.store.store import get_store
from django_delayq.task.handle import JobHandle


def get_job(job_id: str | None, *, backend: str | None = None) -> JobHandle | None:
    """Return the handle of a job by its id, or None if there is no such job. One or two round trips.

    `backend` is the alias in TASKS that enqueued the job, if that alias has a store of its own.
    """
    place = from_text(job_id)
    if place is None:
        return None
    handle = JobHandle(raw_id=place[0], shard=place[1], backend=backend)
    return None if handle.state is State.GONE else handle


def holder_of(task: str, key: str, tenant: str | None, limits: Sequence[LimitUse] | None = ()) -> JobHandle | None:
    """Return the handle of the job that holds a unique key, or throttles its calls, or None. See `Store.holder()`."""
    tenant = None if tenant is None else check_name(tenant, name="tenant")
    found = get_store().holder(task, check_name(key, name="key"), tenant, limits)
    return JobHandle(raw_id=found[0], shard=found[1]) if found else None


async def aget_job(job_id: str | None, *, backend: str | None = None) -> JobHandle | None:
    """Do what `get_job()` does, from async code."""
    return await in_thread(get_job, job_id, backend=backend)
