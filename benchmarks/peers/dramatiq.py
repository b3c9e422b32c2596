"""Dramatiq: JSON messages in a hash, their ids in a list, moved by Lua; delayed ones wait in a worker's memory."""

import os
import sys
import time

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks.peer_runtime import work

NAME = "Dramatiq"
CONFIGURATIONS = {
    "default": "8 threads a process",
    "tuned": "no middleware, 1 thread a process, prefetch 1,000 (delayed jobs 10,000), worker timeout 10 ms",
}
UNSUPPORTED = {"bulk": "no bulk call", "waits_asyncio": "coroutines run on a thread beside, not measured"}
WAIT_CONFIGURATIONS = {"threads": "tuned"}
TUNED = os.environ["BENCH_CONFIGURATION"] == "tuned"

broker = RedisBroker(url=os.environ["BENCH_URL"], middleware=[] if TUNED else None)
dramatiq.set_broker(broker)
TASKS = {name: dramatiq.actor(func, broker=broker) for name, func in work.TASKS.items()}


def send(task: str, number: int, at_us: int | None) -> None:
    """Enqueue one job; delays are in milliseconds."""
    delay = None if at_us is None else max(0, at_us / 1_000 - time.time() * 1_000)
    TASKS[task].send_with_options(args=(number, *work.PAYLOAD), delay=delay)


def workers(processes: int, concurrency: int | None) -> list[list[str]]:
    """Return the command of one parent process with so many children."""
    settings = ("queue_prefetch=1000", "delay_queue_prefetch=10000", "worker_timeout=10")
    tuned = ["env", *(f"dramatiq_{setting}" for setting in settings)] if TUNED else []
    threads = concurrency or (1 if TUNED else 8)
    options = ["--processes", str(processes), "--threads", str(threads)]
    return [[*tuned, sys.executable, "-m", "dramatiq", "benchmarks.peers.dramatiq", *options]]
