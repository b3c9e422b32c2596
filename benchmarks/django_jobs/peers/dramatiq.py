"""Dramatiq: django-dramatiq closes old connections around each message."""

# ruff: noqa: E402 (some imports need Django's settings)

import os
import sys
from functools import partial

import django
from django.apps import apps

if not apps.apps_ready:
    django.setup()

import dramatiq
from django.db import transaction

from benchmarks.django_jobs import orm_work

prepare = orm_work.prepare
sell = dramatiq.actor(orm_work.sell)


def send(task: str, number: int, at_us: int | None) -> None:
    """Enqueue one job."""
    sell.send(number)


def enqueue_in_view(number: int) -> None:
    """Enqueue one job at the commit."""
    transaction.on_commit(partial(sell.send, number))


def workers(processes: int, concurrency: int | None) -> list[list[str]]:
    """Return the command of one process with 8 threads, and its parent."""
    tuned = []
    if os.environ["BENCH_CONFIGURATION"] == "tuned":
        tuned = ["env", "dramatiq_queue_prefetch=1000", "dramatiq_worker_timeout=10"]
    return [[*tuned, sys.executable, "-m", "django", "rundramatiq", "--processes", "1", "--threads", "8"]]
