"""django_delayq: this project."""

# ruff: noqa: E402 (some imports need Django's settings)

import asyncio
import os
import sys
from typing import Any

import django
from django.apps import apps

ENVIRONMENT = {"DJANGO_SETTINGS_MODULE": "benchmarks.peer_runtime.django_project", "BENCH_APP": "django_delayq"}
os.environ |= ENVIRONMENT
# A worker imports this module during its own django.setup(), when it discovers tasks.
if not apps.apps_ready:
    django.setup()

from benchmarks.peer_runtime import work
from django_delayq import delayed_task, enqueue_many

NAME = "django_delayq"
CONFIGURATIONS = {
    "default": "run_worker, 8 threads; run_dispatcher",
    "tuned": "log level WARNING, bulk calls by on_progress, else as default",
    "asyncio": "run_worker --pool asyncio --concurrency 100, else as tuned",
}
UNSUPPORTED: dict[str, str] = {}
WAIT_CONFIGURATIONS = {"threads": "tuned", "asyncio": "asyncio"}
ASYNCIO = os.environ["BENCH_CONFIGURATION"] == "asyncio"
DEFAULT = os.environ["BENCH_CONFIGURATION"] == "default"


async def noop(number: int, text: str, mapping: dict[str, Any]) -> None:
    """Count the run and do nothing else."""
    work.noop(number, text, mapping)


async def wait(number: int, text: str, mapping: dict[str, Any]) -> None:
    """Wait 10 ms, as for a reply of another service."""
    await asyncio.sleep(work.WAIT)
    work.noop(number, text, mapping)


TASKS: dict[str, Any] = {name: delayed_task(func) for name, func in work.TASKS.items()}
if ASYNCIO:
    TASKS |= {"noop": delayed_task(noop), "wait": delayed_task(wait)}


def send(task: str, number: int, at_us: int | None) -> None:
    """Enqueue one job."""
    if at_us is None:
        TASKS[task].enqueue(number, *work.PAYLOAD)
    else:
        TASKS[task].at(work.to_datetime(at_us)).enqueue(number, *work.PAYLOAD)


def send_many(task: str, jobs: list[tuple[int, int | None]]) -> None:
    """Enqueue jobs in bulk. By default they are a list. Otherwise each batch is sent while the next one is made."""
    options: dict[str, Any] = {} if DEFAULT else {"on_progress": lambda _: None}
    if jobs[0][1] is None:
        arguments = ((number, *work.PAYLOAD) for number, _ in jobs)
        TASKS[task].enqueue_many(list(arguments) if DEFAULT else arguments, **options)
    else:
        handles = (
            TASKS[task].at(work.to_datetime(at_us)).job(number, *work.PAYLOAD) for number, at_us in jobs if at_us
        )
        enqueue_many(list(handles) if DEFAULT else handles, **options)


def workers(processes: int, concurrency: int | None) -> list[list[str]]:
    """Return the commands: a dispatcher, and one worker command."""
    manage = [sys.executable, "-m", "django"]
    options = ["--processes", str(processes)]
    if ASYNCIO:
        options += ["--pool", "asyncio", "--concurrency", str(concurrency or 100)]
    elif concurrency:
        options += ["--concurrency", str(concurrency)]
    return [[*manage, "run_dispatcher"], [*manage, "run_worker", *options]]
