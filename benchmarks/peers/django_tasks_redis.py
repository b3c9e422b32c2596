"""django-tasks-redis: Django's tasks in streams."""

# ruff: noqa: E402 (some imports need Django's settings)

import os
import sys
from typing import Any

import django

ENVIRONMENT = {"DJANGO_SETTINGS_MODULE": "benchmarks.peer_runtime.django_project", "BENCH_APP": "django_tasks_redis"}
os.environ |= ENVIRONMENT
django.setup()
from django.core.management import call_command
from django.tasks import task as django_task

from benchmarks.peer_runtime import work

NAME = "django-tasks-redis"
CONFIGURATIONS = {"default": "run_redis_tasks --continuous, which always prints a line a job"}
_ONE = "one job at a time in a worker"
UNSUPPORTED = {"bulk": "no bulk call", "waits_threads": _ONE, "waits_asyncio": _ONE}
WAIT_CONFIGURATIONS: dict[str, str] = {}


# It finds a function by its module and name, so the functions must be defined here.
@django_task
def noop(number: int, text: str, mapping: dict[str, Any]) -> None:
    """Count the run."""
    work.noop(number, text, mapping)


@django_task
def record_start(number: int, text: str, mapping: dict[str, Any]) -> None:
    """Record the start time."""
    work.record_start(number, text, mapping)


TASKS = {"noop": noop, "record_start": record_start}


def prepare() -> None:
    """Create the database tables."""
    call_command("migrate", verbosity=0)


def send(task: str, number: int, at_us: int | None) -> None:
    """Enqueue one job."""
    configured = TASKS[task] if at_us is None else TASKS[task].using(run_after=work.to_datetime(at_us))
    configured.enqueue(number, *work.PAYLOAD)


def workers(processes: int, concurrency: int | None) -> list[list[str]]:
    """Return the commands: a worker runs one job at a time."""
    return [[sys.executable, "-m", "django", "run_redis_tasks", "--continuous"] for _ in range(processes)]
