"""By name: enqueue a task given its registered name."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.views.decorators.debug import sensitive_variables

from django_delayq.conf.validators import check_name
from django_delayq.exceptions import DelayTypeError
from django_delayq.task import registry
from django_delayq.task.arguments import args_and_kwargs
from django_delayq.task.handle import JobHandle
from django_delayq.task.options.expiry import Expires, OnExpiry
from django_delayq.task.options.limits import LimitOption, OnLimit
from django_delayq.task.options.task_options import Unique, Until
from django_delayq.task.task import Task


@sensitive_variables("args", "kwargs", "positional", "named")
def execute_later(
    queue: str,
    name: str,
    args: Iterable[Any] = (),
    delay: float | timedelta = 0,
    *,
    kwargs: Mapping[str, Any] | None = None,
    at: datetime | None = None,
    key: str | None = None,
    unique: Unique | None = None,
    until: Until | None = None,
    tenant: str | None = None,
    priority: int | None = None,
    expires: Expires | None = None,
    on_expiry: OnExpiry | None = None,
    limit: LimitOption | None = None,
    cost: int | None = None,
    on_limit: OnLimit | None = None,
) -> JobHandle:
    """Enqueue a registered task by its name, with the checks of `Task.enqueue()`; returns the handle of the job.

    `args` is a list of positional arguments, `kwargs` a dict of keyword arguments. `delay` is in seconds or a
    timedelta; 0 means as soon as possible. `at` is an aware datetime instead. The other options are those of
    `Task.using()`. Raises `UnknownTask`, and what `Task.using()` and `Task.enqueue()` raise.
    """
    positional, named = args_and_kwargs(args, kwargs)
    task: Task[..., Any] = registry.get(name)
    check_name(queue, name="queue")
    if delay is None:
        raise DelayTypeError("delay must be a number of seconds or a timedelta, got None; 0 means as soon as possible")
    # A delay of 0 is that of a caller who gives none.
    time = {"at": at} if at is not None and not delay else {"delay": delay, "at": at}
    options: dict[str, Any] = {"key": key, "unique": unique, "until": until, "priority": priority}
    options |= {"expires": expires, "on_expiry": on_expiry, "tenant": tenant}
    options |= {"limit": limit, "cost": cost, "on_limit": on_limit}
    return task.using(queue=queue, **time, **options).enqueue(*positional, **named)
