"""Tasks that report their progress, and that heed or ignore a stop."""

import asyncio
import time

from django_delayq import RetryPolicy, current_job, delayed_task
from tests.sample_app.tasks import await_file, note, note_run

_AGAIN = RetryPolicy(max_attempts=5, base=0.01, cap=0.02)


@delayed_task(retry=_AGAIN)
def until_stopped(how: str) -> str:
    """Run until it is asked to stop, then raise or return."""
    note_run()
    job = current_job()
    while not job.should_stop:
        time.sleep(0.01)
    note("stopped", id=job.id)
    if how == "raise":
        raise ValueError("as asked")
    return "enough"


@delayed_task(retry=_AGAIN)
def deaf(path: str) -> None:
    """Run until the file exists, whatever anybody asks, then fail."""
    note_run()
    await_file(path)
    note("end", id=current_job().id)
    raise ValueError("as asked")


@delayed_task(retry=_AGAIN)
async def wait_forever(cleans_up: bool) -> None:
    """Wait until it is cancelled; clean up, or refuse to end."""
    note_run()
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        note("cancelled", id=current_job().id, asked=current_job().should_stop)
        if cleans_up:
            await asyncio.sleep(0.05)
            note("cleaned up", id=current_job().id)
            raise
        await asyncio.sleep(3_600)


@delayed_task(retry=_AGAIN)
def advance(path: str) -> None:
    """Report progress often, at last the half, and run until the file exists."""
    note_run()
    for number in range(5_001):
        current_job().progress(number / 10_000, f"{number:,} of 10,000")
    await_file(path)
