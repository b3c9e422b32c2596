"""django_delayq: `enqueue()` itself waits for the commit."""

# ruff: noqa: E402 (some imports need Django's settings)

import sys

import django
from django.apps import apps

# A worker imports this module during its own django.setup(), when it discovers tasks.
if not apps.apps_ready:
    django.setup()

from benchmarks.django_jobs import orm_work
from django_delayq import delayed_task

prepare = orm_work.prepare
sell = delayed_task(orm_work.sell)


def send(task: str, number: int, at_us: int | None) -> None:
    """Enqueue one job."""
    sell.enqueue(number)


def send_many(task: str, jobs: list[tuple[int, int | None]]) -> None:
    """Enqueue jobs in bulk."""
    sell.enqueue_many((number,) for number, _ in jobs)


def enqueue_in_view(number: int) -> None:
    """Enqueue one job at the commit."""
    sell.enqueue(number)


def workers(processes: int, concurrency: int | None) -> list[list[str]]:
    """Return the commands; 8 threads are the default."""
    manage = [sys.executable, "-m", "django"]
    return [[*manage, "run_dispatcher"], [*manage, "run_worker"]]
