"""django-q2: workers are processes, which close old connections around each job."""

# ruff: noqa: E402 (some imports need Django's settings)

import sys
from functools import partial

import django
from django.apps import apps

if not apps.apps_ready:
    django.setup()

from django.db import transaction
from django_q.brokers import get_broker
from django_q.tasks import async_task

from benchmarks.django_jobs import orm_work

prepare = orm_work.prepare
broker = get_broker()


def send(task: str, number: int, at_us: int | None) -> None:
    """Enqueue one job."""
    async_task(orm_work.sell, number, broker=broker)


def enqueue_in_view(number: int) -> None:
    """Enqueue one job at the commit."""
    transaction.on_commit(partial(async_task, orm_work.sell, number, broker=broker))


def workers(processes: int, concurrency: int | None) -> list[list[str]]:
    """Return the command of one cluster with 8 workers."""
    return [[sys.executable, "-m", "django", "qcluster"]]
