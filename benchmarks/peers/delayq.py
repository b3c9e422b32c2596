"""django_delayq: this project."""

# ruff: noqa: E402 (what needs Django's settings can only be imported after them)

import asyncio
import os
import sys
from typing import Any

import django
from django.apps import apps

ENVIRONMENT = {"DJANGO_SETTINGS_MODULE": "benchmarks.peers.django_project", "BENCH_APP": "django_delayq"}
os.environ |= ENVIRONMENT
# A worker that looks for tasks imports this in the middle of its own setup.
if not apps.apps_ready:
    django.setup()

from benchmarks.peers import work
from django_delayq import delayed_task, enqueue_many

NAME = "django_delayq"
CONFIGURATIONS = {
    "default": "run_worker, 8 threads; run_dispatcher",
    "asyncio": "run_worker --pool asyncio --concurrency 100; run_dispatcher",
}
CANNOT: dict[str, str] = {}
WAITS = {"threads": "default", "asyncio": "asyncio"}
LOOP = os.environ["BENCH_CONFIGURATION"] == "asyncio"


async def noop(number: int, text: str, mapping: dict[str, Any]) -> None:
    """Do nothing but be counted."""
    work.noop(number, text, mapping)


async def wait(number: int, text: str, mapping: dict[str, Any]) -> None:
    """Wait as for a reply from elsewhere."""
    await asyncio.sleep(work.WAIT)
    work.noop(number, text, mapping)


TASKS: dict[str, Any] = {name: delayed_task(func) for name, func in work.TASKS.items()}
if LOOP:
    TASKS |= {"noop": delayed_task(noop), "wait": delayed_task(wait)}


def send(task: str, number: int, at_us: int | None) -> None:
    """Enqueue one job."""
    if at_us is None:
        TASKS[task].enqueue(number, *work.PAYLOAD)
    else:
        TASKS[task].at(work.moment(at_us)).enqueue(number, *work.PAYLOAD)


def send_many(task: str, jobs: list[tuple[int, int | None]]) -> None:
    """Enqueue jobs in bulk, streamed: `on_progress` is what a producer of many would ask for."""
    if jobs[0][1] is None:
        TASKS[task].enqueue_many(((number, *work.PAYLOAD) for number, _ in jobs), on_progress=lambda _: None)
    else:
        made = (TASKS[task].at(work.moment(at_us)).job(number, *work.PAYLOAD) for number, at_us in jobs if at_us)
        enqueue_many(made, on_progress=lambda _: None)


def workers(processes: int, at_once: int | None) -> list[list[str]]:
    """Return the commands: a dispatcher, and one worker command."""
    manage = [sys.executable, "-m", "django"]
    options = ["--processes", str(processes)]
    if LOOP:
        options += ["--pool", "asyncio", "--concurrency", str(at_once or 100)]
    elif at_once:
        options += ["--concurrency", str(at_once)]
    return [[*manage, "run_dispatcher"], [*manage, "run_worker", *options]]
