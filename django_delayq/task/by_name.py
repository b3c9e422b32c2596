"""By name: enqueue a task given its registered name."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.views.decorators.debug import sensitive_variables

from django_delayq.conf.validators import check_name
from django_delayq.exceptions import DelayTypeError
from django_delayq.task import registry
from django_delayq.task.handle import JobHandle
from django_delayq.task.task import Task


@sensitive_variables("args")
def execute_later(queue: str, name: str, args: Iterable[Any] = (), delay: float | timedelta = 0) -> JobHandle:
    """Enqueue a registered task by its name, with the checks of `Task.enqueue()`; returns the handle of the job.

    `args` is a list of positional arguments. `delay` is in seconds or a timedelta; 0 means as soon as possible. Raises
    `UnknownTask`, and what `Task.enqueue()` raises.
    """
    if isinstance(args, (str, bytes, dict)):
        raise TypeError(f"args must be a list of positional arguments, got {type(args).__name__}")
    task: Task[..., Any] = registry.get(name)
    check_name(queue, name="queue")
    if delay is None:
        raise DelayTypeError("delay must be a number of seconds or a timedelta, got None; 0 means as soon as possible")
    return task.using(queue=queue, delay=delay).enqueue(*args)
