"""Tasks that are coroutine functions, for the pool that runs them in one loop."""

import asyncio
import os
import sys
import time
from contextvars import ContextVar

from asgiref.sync import sync_to_async
from django.db import connection

from django_delayq import RetryPolicy, current_job, delayed_task
from tests.sample_app.tasks import note, note_run

_number: ContextVar[int | None] = ContextVar("number", default=None)


@delayed_task(retry=RetryPolicy(max_attempts=5, base=0.01, cap=0.02))
async def wait_for(path: str) -> None:
    """Record that it runs, then wait until the file exists."""
    note_run()
    while not os.path.exists(path):
        await asyncio.sleep(0.05)


@delayed_task
async def block_the_loop(path: str) -> None:
    """Record that it runs, then block the event loop until the file exists."""
    note_run()
    while not os.path.exists(path):
        time.sleep(0.05)


@delayed_task
async def record(*args: object) -> None:
    """Record that it ran, with its arguments."""
    note_run(args=args)


@delayed_task
async def fail() -> None:
    """Fail."""
    note_run()
    await asyncio.sleep(0)
    raise ValueError("as asked")


@delayed_task
async def exit_loop() -> None:
    """Try to end the loop, and the worker."""
    note_run()
    await asyncio.sleep(0)
    sys.exit(3)


async def _exit() -> None:
    sys.exit(3)


@delayed_task(retry=RetryPolicy(max_attempts=1))
async def end_the_loop(how: str) -> None:
    """End the loop that all jobs share, in one of the ways that asyncio does not catch."""
    note_run()
    if how == "stop":
        asyncio.get_running_loop().stop()
    else:
        await asyncio.gather(_exit(), asyncio.sleep(0.1))


@delayed_task
async def nap(seconds: float) -> None:
    """Wait."""
    note_run()
    await asyncio.sleep(seconds)


@delayed_task
async def nap_stubbornly(seconds: float) -> None:
    """Wait, and refuse to be cancelled."""
    note_run()
    while True:
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            note("refused", id=current_job().id)


@delayed_task
async def record_context(number: int) -> None:
    """Record what another job left in this context, and set it; query the database from a thread."""
    note("context", before=_number.get())
    _number.set(number)
    await asyncio.sleep(0)
    assert await sync_to_async(_query)() == (1,)


def _query() -> object:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        return cursor.fetchone()
