"""arq: a job is a key and an entry of a sorted set, which workers poll."""

import asyncio
import os
import sys
from functools import partial
from typing import Any

from arq.connections import ArqRedis, RedisSettings, create_pool
from arq.worker import func

from benchmarks.peers import work

NAME = "arq"
CONFIGURATIONS = {
    "default": "10 jobs at once, polls every 0.5 s, results kept for an hour",
    "tuned": "100 jobs at once, polls every 10 ms, results not kept",
}
CANNOT = {"waits_threads": "one loop"}
WAITS = {"asyncio": "tuned"}
TUNED = os.environ["BENCH_CONFIGURATION"] == "tuned"
AT_ONCE = os.environ.get("BENCH_AT_ONCE", "100")

#: Its command prints two lines a job where nobody configures logging.
QUIET = {"version": 1, "disable_existing_loggers": False, "root": {"level": "WARNING"}}

_pool: ArqRedis | None = None


async def noop(context: Any, *args: Any) -> None:
    """Be counted."""
    work.noop(*args)


async def note(context: Any, *args: Any) -> None:
    """Write down when this began."""
    work.note(*args)


async def wait(context: Any, *args: Any) -> None:
    """Wait as for a reply from elsewhere."""
    await asyncio.sleep(work.WAIT)
    work.noop(*args)


class WorkerSettings:
    """What the worker's command reads."""

    functions = [func(noop, name="noop"), func(note, name="note"), func(wait, name="wait")]
    redis_settings = RedisSettings.from_dsn(os.environ["BENCH_URL"])
    if TUNED:
        max_jobs, poll_delay, keep_result, log_results = int(AT_ONCE), 0.01, 0, False


async def send(task: str, number: int, at_us: int | None) -> None:
    """Enqueue one job."""
    global _pool
    _pool = _pool or await create_pool(WorkerSettings.redis_settings)
    await _pool.enqueue_job(task, number, *work.PAYLOAD, _defer_until=at_us and work.moment(at_us))


#: There is no call for many.
send_many = partial(work.side_by_side, send)


def workers(processes: int, at_once: int | None) -> list[list[str]]:
    """Return the commands."""
    arq = os.path.join(os.path.dirname(sys.executable), "arq")
    quiet = ["--custom-log-dict", "benchmarks.peers.arq.QUIET"]
    command = ["env", f"BENCH_AT_ONCE={at_once or 100}", arq, *quiet, "benchmarks.peers.arq.WorkerSettings"]
    return [command for _ in range(processes)]
