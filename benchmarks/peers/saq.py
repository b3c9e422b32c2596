"""SAQ: a job is a key and an entry of a list that workers block on; a scheduler polls the delayed ones each second."""

import asyncio
import os
import sys
from functools import partial
from typing import Any

from saq import Queue

from benchmarks.peer_runtime import work

NAME = "SAQ"
CONFIGURATIONS = {
    "default": "10 jobs at once, results kept for 10 minutes, log lines",
    "tuned": "100 jobs at once, results not kept",
}
UNSUPPORTED = {"waits_threads": "one loop; plain functions in threads, not measured"}
WAIT_CONFIGURATIONS = {"asyncio": "tuned"}
TUNED = os.environ["BENCH_CONFIGURATION"] == "tuned"
#: A ttl of -1 stores no result.
OPTIONS = {"ttl": -1} if TUNED else {}

# Each of the 100 coroutines blocks on a connection of its own, and redis-py's pools have at most 100.
queue = Queue.from_url(os.environ["BENCH_URL"] + "?max_connections=1000")


async def noop(context: Any, *, args: Any) -> None:
    """Count the run."""
    work.noop(*args)


async def record_start(context: Any, *, args: Any) -> None:
    """Record the start time."""
    work.record_start(*args)


async def wait(context: Any, *, args: Any) -> None:
    """Wait 10 ms, as for a reply of another service."""
    await asyncio.sleep(work.WAIT)
    work.noop(*args)


settings = {
    "queue": queue,
    "functions": [noop, record_start, wait],
    "concurrency": int(os.environ.get("BENCH_CONCURRENCY", "100")) if TUNED else 10,
}


async def send(task: str, number: int, at_us: int | None) -> None:
    """Enqueue one job."""
    scheduled = 0 if at_us is None else at_us / 1e6
    await queue.enqueue(task, args=(number, *work.PAYLOAD), scheduled=scheduled, **OPTIONS)


#: The system has no bulk call.
send_many = partial(work.send_concurrently, send)


def workers(processes: int, concurrency: int | None) -> list[list[str]]:
    """Return the command of one parent process with so many children."""
    saq = os.path.join(os.path.dirname(sys.executable), "saq")
    options = ["--workers", str(processes), *(["--quiet"] if TUNED else [])]
    return [["env", f"BENCH_CONCURRENCY={concurrency or 100}", saq, "benchmarks.peers.saq.settings", *options]]
