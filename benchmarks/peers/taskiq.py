"""taskiq: JSON messages in a stream or a list; a scheduler process sends the delayed ones."""

import asyncio
import os
import sys
from functools import partial

from taskiq import TaskiqScheduler
from taskiq_redis import ListQueueBroker, ListRedisScheduleSource, RedisStreamBroker

from benchmarks.peer_runtime import work

NAME = "taskiq"
CONFIGURATIONS = {
    "default": "a stream, which is acknowledged; log lines",
    "tuned": "a list, which is not; arguments not parsed, 100 jobs fetched ahead",
}
UNSUPPORTED = {"waits_threads": "plain functions in threads, not measured"}
WAIT_CONFIGURATIONS = {"asyncio": "tuned"}
URL, TUNED = os.environ["BENCH_URL"], os.environ["BENCH_CONFIGURATION"] == "tuned"

# No socket timeout: a worker may block longer than redis-py's 5 s, and a job that arrives then is lost.
broker = ListQueueBroker(URL, socket_timeout=None) if TUNED else RedisStreamBroker(URL, socket_timeout=None)
source = ListRedisScheduleSource(URL)
scheduler = TaskiqScheduler(broker, [source])
_ready = False


async def noop(number: int, text: str, mapping: dict[str, object]) -> None:
    """Count the run."""
    work.noop(number, text, mapping)


async def record_start(number: int, text: str, mapping: dict[str, object]) -> None:
    """Record the start time."""
    work.record_start(number, text, mapping)


async def wait(number: int, text: str, mapping: dict[str, object]) -> None:
    """Wait 10 ms, as for a reply of another service."""
    await asyncio.sleep(work.WAIT)
    work.noop(number, text, mapping)


TASKS = {func.__name__: broker.register_task(func, task_name=func.__name__) for func in (noop, record_start, wait)}


async def send(task: str, number: int, at_us: int | None) -> None:
    """Enqueue one job."""
    global _ready
    if not _ready:
        await broker.startup()
        await source.startup()
        _ready = True
    if at_us is None:
        await TASKS[task].kiq(number, *work.PAYLOAD)
    else:
        await TASKS[task].schedule_by_time(source, work.to_datetime(at_us), number, *work.PAYLOAD)


#: The system has no bulk call.
send_many = partial(work.send_concurrently, send)


def workers(processes: int, concurrency: int | None) -> list[list[str]]:
    """Return the commands: one parent with so many processes, and the scheduler, tuned to its shortest interval."""
    taskiq = os.path.join(os.path.dirname(sys.executable), "taskiq")
    options = ["--workers", str(processes), "--max-async-tasks", str(concurrency or 100)]
    quiet = ["--log-level", "WARNING"] if TUNED else []
    shortest_interval = ["--update-interval", "1", "--loop-interval", "1", *quiet]
    return [
        [
            taskiq,
            "worker",
            "benchmarks.peers.taskiq:broker",
            *options,
            *(["--no-parse", "--max-prefetch", "100", *quiet] if TUNED else []),
        ],
        [taskiq, "scheduler", "benchmarks.peers.taskiq:scheduler", *(shortest_interval if TUNED else [])],
    ]
