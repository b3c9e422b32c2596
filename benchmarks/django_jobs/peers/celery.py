"""Celery: its Django fixup closes old connections around each task."""

# ruff: noqa: E402 (some imports need Django's settings)

import os
import sys

import django
from django.apps import apps

if not apps.apps_ready:
    django.setup()

from celery import Celery, group

from benchmarks.django_jobs import orm_work

prepare = orm_work.prepare
app = Celery("benchmarks")
app.config_from_object("django.conf:settings", namespace="CELERY")
sell = app.task(orm_work.sell, name="sell")


def send(task: str, number: int, at_us: int | None) -> None:
    """Enqueue one job."""
    sell.delay(number)


def send_many(task: str, jobs: list[tuple[int, int | None]]) -> None:
    """Enqueue jobs as a group, which shares one producer."""
    group(sell.s(number) for number, _ in jobs).apply_async()


def enqueue_in_view(number: int) -> None:
    """Enqueue one job at the commit."""
    sell.delay_on_commit(number)


def workers(processes: int, concurrency: int | None) -> list[list[str]]:
    """Return the command."""
    command = [sys.executable, "-m", "celery", "-A", "benchmarks.django_jobs.peers.celery", "worker"]
    command += ["--pool", "threads", "--concurrency", "8"]
    if os.environ["BENCH_CONFIGURATION"] == "tuned":
        command += ["--loglevel", "ERROR", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    return [command]
