"""Right uses: mypy reports none of them, and knows what each returns."""

from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from django_delayq import JobHandle, aenqueue_many, enqueue_many, get_job, jobs, queue
from shop.tasks import ask_the_bank, close_bids, send_reminder

MOMENT = datetime(2030, 1, 1, tzinfo=UTC)


def enqueue() -> list[JobHandle]:
    """Enqueue jobs in each way."""
    assert_type(close_bids.enqueue(42), JobHandle)
    assert_type(close_bids.after(minutes=10).enqueue(42), JobHandle)
    close_bids.after(600).enqueue(42)
    close_bids.after(timedelta(days=6)).enqueue(sale_id=42)
    close_bids.at(MOMENT).enqueue(42)
    send_reminder.using(delay=600, queue="bulk", priority=-5, key="reminder:7", unique="replace").enqueue(7, text="now")
    handles = close_bids.after(hours=1).enqueue_many([(1,), (2,), (3,)])
    assert_type(handles, list[JobHandle])
    assert_type(close_bids.enqueue_many(((pk,) for pk in range(3)), on_progress=print), int)
    enqueue_many([send_reminder.job(7), ask_the_bank.after(60).job("x")])
    return handles


async def enqueue_from_async_code() -> None:
    """Enqueue jobs without blocking the event loop."""
    handle = await ask_the_bank.aenqueue("x")
    await handle.acancel()
    await aenqueue_many([close_bids.job(1)])


def call() -> None:
    """Call the functions directly."""
    assert_type(send_reminder(7), str)
    coroutine: Coroutine[Any, Any, bool] = ask_the_bank("x")
    coroutine.close()


def look(job_id: str) -> None:
    """Read and change jobs by their handles."""
    handle = get_job(job_id)
    if handle is not None:
        assert_type(handle.id, str)
        assert_type(handle.due, datetime | None)
        assert_type(handle.cancel() or handle.reschedule(delay=60) or handle.stop(), bool)
    assert_type(jobs(task=close_bids, state="scheduled").count(), int)
    queue("mail").pause(until=timedelta(hours=1), by="ann")
