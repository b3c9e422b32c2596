"""Huey: `db_task` of djhuey closes old connections around each run."""

# ruff: noqa: E402 (some imports need Django's settings)

import os
import sys

import django
from django.apps import apps

if not apps.apps_ready:
    django.setup()

from huey.contrib.djhuey import db_task, on_commit_task

from benchmarks.django_jobs import orm_work

prepare = orm_work.prepare
sell = db_task(name="sell")(orm_work.sell)
sell_on_commit = on_commit_task(name="sell_on_commit")(orm_work.sell)


def send(task: str, number: int, at_us: int | None) -> None:
    """Enqueue one job."""
    sell(number)


def enqueue_in_view(number: int) -> None:
    """Enqueue one job at the commit."""
    sell_on_commit(number)


def workers(processes: int, concurrency: int | None) -> list[list[str]]:
    """Return the command of one consumer."""
    quiet = ["--quiet"] if os.environ["BENCH_CONFIGURATION"] == "tuned" else []
    return [[sys.executable, "-m", "django", "run_huey", *quiet]]
