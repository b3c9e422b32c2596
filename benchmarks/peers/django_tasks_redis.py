"""django-tasks-redis: Django's tasks in streams."""

# ruff: noqa: E402 (what needs Django's settings can only be imported after them)

import os
import sys
from typing import Any

import django

ENVIRONMENT = {"DJANGO_SETTINGS_MODULE": "benchmarks.peers.django_project", "BENCH_APP": "django_tasks_redis"}
os.environ |= ENVIRONMENT
django.setup()
from django.core.management import call_command
from django.tasks import task as django_task

from benchmarks.peers import work

NAME = "django-tasks-redis"
CONFIGURATIONS = {"default": "run_redis_tasks --continuous, which always prints a line a job"}
_ONE = "one job at a time in a worker"
CANNOT = {"bulk": "no bulk call", "waits_threads": _ONE, "waits_asyncio": _ONE}
WAITS: dict[str, str] = {}


# It finds a function by the name of its module, so they have to be this one's.
@django_task
def noop(number: int, text: str, mapping: dict[str, Any]) -> None:
    """Be counted."""
    work.noop(number, text, mapping)


@django_task
def note(number: int, text: str, mapping: dict[str, Any]) -> None:
    """Write down when this began."""
    work.note(number, text, mapping)


TASKS = {"noop": noop, "note": note}


def prepare() -> None:
    """Make the database's tables."""
    call_command("migrate", verbosity=0)


def send(task: str, number: int, at_us: int | None) -> None:
    """Enqueue one job."""
    made = TASKS[task] if at_us is None else TASKS[task].using(run_after=work.moment(at_us))
    made.enqueue(number, *work.PAYLOAD)


def workers(processes: int, at_once: int | None) -> list[list[str]]:
    """Return the commands: a worker runs one job at a time."""
    return [[sys.executable, "-m", "django", "run_redis_tasks", "--continuous"] for _ in range(processes)]
