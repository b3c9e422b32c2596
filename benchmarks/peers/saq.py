"""SAQ: a job is a key and an entry of a list that workers block on; delayed ones are looked at each second."""

import asyncio
import os
import sys
from functools import partial
from typing import Any

from saq import Queue

from benchmarks.peers import work

NAME = "SAQ"
CONFIGURATIONS = {
    "default": "10 jobs at once, results kept for 10 minutes",
    "tuned": "100 jobs at once, results not kept",
}
CANNOT = {"waits_threads": "one loop; plain functions in threads, not measured"}
WAITS = {"asyncio": "tuned"}
TUNED = os.environ["BENCH_CONFIGURATION"] == "tuned"
#: A ttl of -1 keeps nothing.
OPTIONS = {"ttl": -1} if TUNED else {}

# Each of the 100 blocks on a connection of its own; redis-py's pools end at 100.
queue = Queue.from_url(os.environ["BENCH_URL"] + "?max_connections=1000")


async def noop(context: Any, *, args: Any) -> None:
    """Be counted."""
    work.noop(*args)


async def note(context: Any, *, args: Any) -> None:
    """Write down when this began."""
    work.note(*args)


async def wait(context: Any, *, args: Any) -> None:
    """Wait as for a reply from elsewhere."""
    await asyncio.sleep(work.WAIT)
    work.noop(*args)


settings = {
    "queue": queue,
    "functions": [noop, note, wait],
    "concurrency": int(os.environ.get("BENCH_AT_ONCE", "100")) if TUNED else 10,
}


async def send(task: str, number: int, at_us: int | None) -> None:
    """Enqueue one job."""
    scheduled = 0 if at_us is None else at_us / 1e6
    await queue.enqueue(task, args=(number, *work.PAYLOAD), scheduled=scheduled, **OPTIONS)


#: There is no call for many.
send_many = partial(work.side_by_side, send)


def workers(processes: int, at_once: int | None) -> list[list[str]]:
    """Return the command of one parent with so many processes."""
    saq = os.path.join(os.path.dirname(sys.executable), "saq")
    options = ["--workers", str(processes), "--quiet"]
    return [["env", f"BENCH_AT_ONCE={at_once or 100}", saq, "benchmarks.peers.saq.settings", *options]]
