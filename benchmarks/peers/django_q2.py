"""django-q2: signed pickles in a list; a parent hands them to its worker processes through a pipe."""

# ruff: noqa: E402 (what needs Django's settings can only be imported after them)

import os
import sys

import django

ENVIRONMENT = {"DJANGO_SETTINGS_MODULE": "benchmarks.peers.django_project", "BENCH_APP": "django_q"}
os.environ |= ENVIRONMENT
django.setup()
from django.core.management import call_command
from django_q.brokers import get_broker
from django_q.tasks import async_task

from benchmarks.peers import work

NAME = "django-q2"
CONFIGURATIONS = {
    "default": "results kept in the database (SQLite)",
    "tuned": "no results, no recycling, a queue of 1,000",
}
_LATE = "delayed jobs are database rows, looked at every 30 s"
_ONE = "one job at a time in a worker"
CANNOT = {"bulk": "no bulk call", "lateness": _LATE, "instant": _LATE, "waiting": _LATE}
CANNOT |= {"waits_threads": _ONE, "waits_asyncio": _ONE}
WAITS: dict[str, str] = {}

broker = get_broker()


def prepare() -> None:
    """Make the database's tables."""
    call_command("migrate", verbosity=0)


def send(task: str, number: int, at_us: int | None) -> None:
    """Enqueue one job."""
    async_task(work.TASKS[task], number, *work.PAYLOAD, broker=broker)


def workers(processes: int, at_once: int | None) -> list[list[str]]:
    """Return the command of one cluster with so many workers."""
    return [["env", f"BENCH_PROCESSES={processes}", sys.executable, "-m", "django", "qcluster"]]
