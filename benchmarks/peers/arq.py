"""arq: a job is a key and an entry of a sorted set, which workers poll."""

import asyncio
import os
import sys
from functools import partial
from typing import Any

from arq.connections import ArqRedis, RedisSettings, create_pool
from arq.worker import func

from benchmarks.peer_runtime import work

NAME = "arq"
CONFIGURATIONS = {
    "default": "10 jobs at once, polls every 0.5 s, results kept for an hour, log lines",
    "tuned": "100 jobs at once, polls every 10 ms, results not kept",
}
UNSUPPORTED = {"waits_threads": "one loop"}
WAIT_CONFIGURATIONS = {"asyncio": "tuned"}
TUNED = os.environ["BENCH_CONFIGURATION"] == "tuned"
CONCURRENCY = os.environ.get("BENCH_CONCURRENCY", "100")

#: Without a logging configuration, its command prints two lines for each job.
QUIET = {"version": 1, "disable_existing_loggers": False, "root": {"level": "WARNING"}}

_pool: ArqRedis | None = None


async def noop(context: Any, *args: Any) -> None:
    """Count the run."""
    work.noop(*args)


async def record_start(context: Any, *args: Any) -> None:
    """Record the start time."""
    work.record_start(*args)


async def wait(context: Any, *args: Any) -> None:
    """Wait 10 ms, as for a reply of another service."""
    await asyncio.sleep(work.WAIT)
    work.noop(*args)


class WorkerSettings:
    """The settings that the worker command reads."""

    functions = [func(noop, name="noop"), func(record_start, name="record_start"), func(wait, name="wait")]
    redis_settings = RedisSettings.from_dsn(os.environ["BENCH_URL"])
    if TUNED:
        max_jobs, poll_delay, keep_result, log_results = int(CONCURRENCY), 0.01, 0, False


async def send(task: str, number: int, at_us: int | None) -> None:
    """Enqueue one job."""
    global _pool
    _pool = _pool or await create_pool(WorkerSettings.redis_settings)
    await _pool.enqueue_job(task, number, *work.PAYLOAD, _defer_until=at_us and work.to_datetime(at_us))


#: The system has no bulk call.
send_many = partial(work.send_concurrently, send)


def workers(processes: int, concurrency: int | None) -> list[list[str]]:
    """Return the commands."""
    arq = os.path.join(os.path.dirname(sys.executable), "arq")
    quiet = ["--custom-log-dict", "benchmarks.peers.arq.QUIET"] if TUNED else []
    command = ["env", f"BENCH_CONCURRENCY={concurrency or 100}", arq, *quiet, "benchmarks.peers.arq.WorkerSettings"]
    return [command for _ in range(processes)]
