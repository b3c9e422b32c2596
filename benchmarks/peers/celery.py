"""Celery: jobs are JSON messages in a list; delayed ones wait in a worker's memory."""

import os
import sys

from celery import Celery, group

from benchmarks.peer_runtime import work

NAME = "Celery"
CONFIGURATIONS = {
    "default": "prefork",
    "tuned": "solo, prefetch multiplier 128, results ignored, no gossip, mingle, heartbeat or events",
    "threads": "threads, else as tuned",
    "gevent": "gevent, else as tuned",
}
UNSUPPORTED: dict[str, str] = {}
WAIT_CONFIGURATIONS = {"threads": "threads", "asyncio": "gevent"}
CONFIGURATION = os.environ["BENCH_CONFIGURATION"]

app = Celery("benchmarks", broker=os.environ["BENCH_URL"])
if CONFIGURATION != "default":
    app.conf.update(
        task_ignore_result=True,
        worker_prefetch_multiplier=128,
        worker_disable_rate_limits=True,
        worker_send_task_events=False,
        worker_enable_remote_control=False,
    )
TASKS = {name: app.task(func, name=name) for name, func in work.TASKS.items()}


def send(task: str, number: int, at_us: int | None) -> None:
    """Enqueue one job."""
    TASKS[task].apply_async((number, *work.PAYLOAD), eta=at_us and work.to_datetime(at_us))


def send_many(task: str, jobs: list[tuple[int, int | None]]) -> None:
    """Enqueue jobs as a group, which shares one producer."""
    signatures = (
        TASKS[task].s(number, *work.PAYLOAD).set(eta=at_us and work.to_datetime(at_us)) for number, at_us in jobs
    )
    group(signatures).apply_async()


def workers(processes: int, concurrency: int | None) -> list[list[str]]:
    """Return the commands: one parent for prefork, one process each for the other pools."""
    command = [sys.executable, "-m", "celery", "-A", "benchmarks.peers.celery", "worker"]
    if CONFIGURATION == "default":
        return [[*command, "--concurrency", str(processes)]]
    pool = {"tuned": "solo"}.get(CONFIGURATION, CONFIGURATION)
    command += ["--loglevel", "ERROR", "--pool", pool, "--without-gossip", "--without-mingle", "--without-heartbeat"]
    if pool != "solo":
        command += ["--concurrency", str(concurrency or 8)]
    return [[*command, "--hostname", f"worker{number}@%h"] for number in range(processes)]
