"""Delayed jobs for Django on Redis: on time to the millisecond, never lost, visible until they start."""

from django_delayq.current import current_job
from django_delayq.decoration import delayed_task
from django_delayq.exceptions import DeadLetterNow, RetryLater
from django_delayq.handle import JobHandle, get_job
from django_delayq.outbox import enqueue_many
from django_delayq.retry import RetryPolicy
from django_delayq.store.store import get_store
from django_delayq.task import Task, execute_later

__version__ = "0.1.0"
__all__ = [
    "DeadLetterNow",
    "JobHandle",
    "RetryLater",
    "RetryPolicy",
    "Task",
    "current_job",
    "delayed_task",
    "enqueue_many",
    "execute_later",
    "get_job",
    "get_store",
]
