"""taskiq: JSON messages in a stream or a list; delayed ones are sent by a scheduler process of their own."""

import asyncio
import os
import sys
from functools import partial

from taskiq import TaskiqScheduler
from taskiq_redis import ListQueueBroker, ListRedisScheduleSource, RedisStreamBroker

from benchmarks.peers import work

NAME = "taskiq"
CONFIGURATIONS = {
    "default": "a stream, which is acknowledged",
    "tuned": "a list, which is not; arguments not parsed, 100 jobs fetched ahead",
}
CANNOT = {"waits_threads": "plain functions in threads, not measured"}
WAITS = {"asyncio": "tuned"}
URL, TUNED = os.environ["BENCH_URL"], os.environ["BENCH_CONFIGURATION"] == "tuned"

# Without an end to reads: redis-py's 5 s are shorter than a worker may have to block, and what arrives then is lost.
broker = ListQueueBroker(URL, socket_timeout=None) if TUNED else RedisStreamBroker(URL, socket_timeout=None)
source = ListRedisScheduleSource(URL)
scheduler = TaskiqScheduler(broker, [source])
_ready = False


async def noop(number: int, text: str, mapping: dict[str, object]) -> None:
    """Be counted."""
    work.noop(number, text, mapping)


async def note(number: int, text: str, mapping: dict[str, object]) -> None:
    """Write down when this began."""
    work.note(number, text, mapping)


async def wait(number: int, text: str, mapping: dict[str, object]) -> None:
    """Wait as for a reply from elsewhere."""
    await asyncio.sleep(work.WAIT)
    work.noop(number, text, mapping)


TASKS = {func.__name__: broker.register_task(func, task_name=func.__name__) for func in (noop, note, wait)}


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
        await TASKS[task].schedule_by_time(source, work.moment(at_us), number, *work.PAYLOAD)


#: There is no call for many.
send_many = partial(work.side_by_side, send)


def workers(processes: int, at_once: int | None) -> list[list[str]]:
    """Return the commands: one parent with so many processes, and the scheduler, looking as often as it can."""
    taskiq = os.path.join(os.path.dirname(sys.executable), "taskiq")
    options = ["--workers", str(processes), "--max-async-tasks", str(at_once or 100), "--log-level", "WARNING"]
    often = ["--update-interval", "1", "--loop-interval", "1", "--log-level", "WARNING"]
    return [
        [
            taskiq,
            "worker",
            "benchmarks.peers.taskiq:broker",
            *options,
            *(["--no-parse", "--max-prefetch", "100"] if TUNED else []),
        ],
        [taskiq, "scheduler", "benchmarks.peers.taskiq:scheduler", *(often if TUNED else [])],
    ]
