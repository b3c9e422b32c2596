"""RQ: django-rq's queues wait for the commit by default. A worker runs one job at a time."""

# ruff: noqa: E402 (some imports need Django's settings)

import os
import sys

import django
from django.apps import apps

if not apps.apps_ready:
    django.setup()

import django_rq
from rq import Queue

from benchmarks.django_jobs import orm_work

prepare = orm_work.prepare
TUNED = os.environ["BENCH_CONFIGURATION"] == "tuned"
queue = django_rq.get_queue("default")


def send(task: str, number: int, at_us: int | None) -> None:
    """Enqueue one job."""
    queue.enqueue(orm_work.sell, number)


def send_many(task: str, jobs: list[tuple[int, int | None]]) -> None:
    """Enqueue jobs in bulk."""
    options = {"result_ttl": 0} if TUNED else {}
    for first in range(0, len(jobs), 500):
        batch = jobs[first : first + 500]
        queue.enqueue_many([Queue.prepare_data(orm_work.sell, (number,), **options) for number, _ in batch])


def enqueue_in_view(number: int) -> None:
    """Enqueue one job at the commit."""
    queue.enqueue(orm_work.sell, number)


def workers(processes: int, concurrency: int | None) -> list[list[str]]:
    """Return the commands of 8 workers."""
    options = ["--worker-class", "rq.SimpleWorker", "--verbosity", "0"] if TUNED else []
    return [[sys.executable, "-m", "django", "rqworker", "default", *options] for _ in range(8)]
