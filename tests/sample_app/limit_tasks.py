"""Tasks with limits; the ledger has a line when one begins and when it ends.

They sleep in place of work that takes a while: tests count how many of them run at the same time.
"""

import asyncio
import time

from django_delayq import delayed_task, limit
from tests.sample_app.tasks import await_file, note, note_run

LIMITS = {
    "slots": {"max_running": 2},
    "one": {"max_running": 1},
    "many": {"max_running": 1_000},
    "pace": {"rate": "20/s", "burst": 1},
}


@delayed_task(limit="slots")
def hold(seconds: float = 0.05) -> None:
    """Take a while, at most two at a time."""
    note_run()
    time.sleep(seconds)
    note("end")


@delayed_task(limit="pace")
def pace() -> None:
    """Begin at most 20 times a second."""
    note_run()


@delayed_task(limit=("one", lambda account: account), on_limit="drop", store_result=True)
def only_one(account: int, path: str) -> str:
    """Run once at a time for each account, until the file exists; others are dropped."""
    note_run()
    await_file(path)
    return "done"


@delayed_task
def block(seconds: float = 0.05, patience: float | None = None) -> None:
    """Take a slot for a part of the task."""
    note_run()
    with limit("slots", block=patience):
        note("inside")
        time.sleep(seconds)
        note("end")


@delayed_task
def block_until(path: str) -> None:
    """Take a slot until the file exists."""
    note_run()
    with limit("slots"):
        note("inside")
        await_file(path)
        note("end")


@delayed_task
async def block_async(seconds: float = 0.05) -> None:
    """Take a slot for a part of the task, in an event loop."""
    note_run()
    async with limit("slots", block=20):
        note("inside")
        await asyncio.sleep(seconds)
        note("end")


@delayed_task(limit="slots")
def call_out(seconds: float) -> None:
    """Find the other side overloaded."""
    note_run()
    limit("slots").back_off(seconds)


@delayed_task
def plain(value: int = 0) -> None:
    """Record the run."""
    note_run(value=value)
