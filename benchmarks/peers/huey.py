"""Huey: jobs are pickles in a list, delayed ones in a sorted set that a thread of the consumer polls each second."""

import os
import sys

from huey import RedisHuey

from benchmarks.peer_runtime import work

NAME = "Huey"
CONFIGURATIONS = {
    "default": "one worker thread; process workers if there are two; log lines",
    "tuned": "results off, no periodic tasks, no health check",
    "process": "process workers, else as tuned",
    "greenlet": "greenlet workers, else as tuned",
}
UNSUPPORTED = {"bulk": "no bulk call"}
WAIT_CONFIGURATIONS = {"threads": "tuned", "asyncio": "greenlet"}
CONFIGURATION = os.environ["BENCH_CONFIGURATION"]

# Each worker blocks on a connection of its own, and redis-py's pools have at most 100.
URL = os.environ["BENCH_URL"] + "?max_connections=1000"
huey = RedisHuey("benchmarks", url=URL, results=CONFIGURATION == "default")
TASKS = {name: huey.task()(func) for name, func in work.TASKS.items()}


def send(task: str, number: int, at_us: int | None) -> None:
    """Enqueue one job."""
    if at_us is None:
        TASKS[task](number, *work.PAYLOAD)
    else:
        TASKS[task].schedule((number, *work.PAYLOAD), eta=work.to_datetime(at_us))


def workers(processes: int, concurrency: int | None) -> list[list[str]]:
    """Return the command of one consumer, which contains the workers and the scheduler."""
    consumer = os.path.join(os.path.dirname(sys.executable), "huey_consumer")
    chosen = CONFIGURATION if CONFIGURATION in ("process", "greenlet") else "thread"
    kind = "process" if processes > 1 else chosen
    options = ["--workers", str(concurrency or processes), "--worker-type", kind]
    if CONFIGURATION != "default":
        options += ["--no-periodic", "--disable-health-check", "--quiet"]
    patched = [sys.executable, "-m", "gevent.monkey"] if kind == "greenlet" else []
    return [[*patched, consumer, "benchmarks.peers.huey.huey", *options]]
