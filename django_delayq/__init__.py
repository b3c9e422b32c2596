"""Delayed jobs for Django on Redis: on time to the millisecond, never lost, visible until they start."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django_delayq.by_name import execute_later
    from django_delayq.current import current_job
    from django_delayq.decoration import delayed_task
    from django_delayq.exceptions import DeadLetterNow, RetryLater
    from django_delayq.handle import JobHandle, get_job
    from django_delayq.outbox import enqueue_many
    from django_delayq.retry import RetryPolicy
    from django_delayq.store.store import get_store
    from django_delayq.task import Task

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

#: Public name -> the module it lives in. Imported at first use: pytest loads our plugin, and with it this file, in
#: every run of an environment that has us installed, before any Django is set up.
_HOMES = {
    "DeadLetterNow": "exceptions",
    "JobHandle": "handle",
    "RetryLater": "exceptions",
    "RetryPolicy": "retry",
    "Task": "task",
    "current_job": "current",
    "delayed_task": "decoration",
    "enqueue_many": "outbox",
    "execute_later": "by_name",
    "get_job": "handle",
    "get_store": "store.store",
}


def __getattr__(name: str) -> Any:
    """Import a public name."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value
