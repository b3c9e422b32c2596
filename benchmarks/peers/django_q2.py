"""django-q2: signed pickles in a list; a parent passes them to its worker processes through a pipe."""

# ruff: noqa: E402 (some imports need Django's settings)

import os
import sys

import django

ENVIRONMENT = {"DJANGO_SETTINGS_MODULE": "benchmarks.peer_runtime.django_project", "BENCH_APP": "django_q"}
os.environ |= ENVIRONMENT
django.setup()
from django.core.management import call_command
from django_q.brokers import get_broker
from django_q.tasks import async_task

from benchmarks.peer_runtime import work

NAME = "django-q2"
CONFIGURATIONS = {
    "default": "results kept in the database (SQLite), log lines",
    "tuned": "no results, no recycling, a queue of 1,000",
}
_LATE = "delayed jobs are database rows, looked at every 30 s"
_ONE = "one job at a time in a worker"
UNSUPPORTED = {"bulk": "no bulk call", "lateness": _LATE, "instant": _LATE, "waiting": _LATE}
UNSUPPORTED |= {"waits_threads": _ONE, "waits_asyncio": _ONE}
WAIT_CONFIGURATIONS: dict[str, str] = {}

broker = get_broker()


def prepare() -> None:
    """Create the database tables."""
    call_command("migrate", verbosity=0)


def send(task: str, number: int, at_us: int | None) -> None:
    """Enqueue one job."""
    async_task(work.TASKS[task], number, *work.PAYLOAD, broker=broker)


def workers(processes: int, concurrency: int | None) -> list[list[str]]:
    """Return the command of one cluster with so many workers."""
    return [["env", f"BENCH_PROCESSES={processes}", sys.executable, "-m", "django", "qcluster"]]
