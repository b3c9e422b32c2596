"""Delayed jobs for Django on Redis: on time to the millisecond, never lost, visible until they start."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from django_delayq._version import __version__ as __version__

if TYPE_CHECKING:
    from django_delayq.control.jobs import jobs
    from django_delayq.control.limits import limit
    from django_delayq.control.queues import queue, queues
    from django_delayq.exceptions import DeadLetterNow, RetryLater, Snooze
    from django_delayq.job.retry import RetryPolicy
    from django_delayq.job.unsent import Debounce, Throttle
    from django_delayq.recurring.declaration import Recurring
    from django_delayq.store.store import get_store
    from django_delayq.task.by_name import execute_later
    from django_delayq.task.context import current_job
    from django_delayq.task.decorator import delayed_task
    from django_delayq.task.finding import aget_job, get_job
    from django_delayq.task.handle import JobHandle
    from django_delayq.task.options.tenant import tenant
    from django_delayq.task.outbox import aenqueue_many, enqueue_many
    from django_delayq.task.task import Task

__all__ = [
    "DeadLetterNow",
    "Debounce",
    "JobHandle",
    "Recurring",
    "RetryLater",
    "RetryPolicy",
    "Snooze",
    "Task",
    "Throttle",
    "aenqueue_many",
    "aget_job",
    "current_job",
    "delayed_task",
    "enqueue_many",
    "execute_later",
    "get_job",
    "get_store",
    "jobs",
    "limit",
    "queue",
    "queues",
    "tenant",
]

#: Public name -> the module it lives in. Imported at first use: pytest loads our plugin, and with it this file, in
#: every run of an environment that has us installed, before any Django is set up.
_HOMES = {
    "DeadLetterNow": "exceptions",
    "Debounce": "job.unsent",
    "JobHandle": "task.handle",
    "Recurring": "recurring.declaration",
    "RetryLater": "exceptions",
    "RetryPolicy": "job.retry",
    "Snooze": "exceptions",
    "Task": "task.task",
    "Throttle": "job.unsent",
    "aenqueue_many": "task.outbox",
    "aget_job": "task.finding",
    "current_job": "task.context",
    "delayed_task": "task.decorator",
    "enqueue_many": "task.outbox",
    "execute_later": "task.by_name",
    "get_job": "task.finding",
    "get_store": "store.store",
    "jobs": "control.jobs",
    "limit": "control.limits",
    "queue": "control.queues",
    "queues": "control.queues",
    "tenant": "task.options.tenant",
}


def __getattr__(name: str) -> Any:
    """Import a public name."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value
