"""Decorator: `@delayed_task` makes a task of a function and registers it."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta, tzinfo
from functools import cached_property
from typing import Any, ParamSpec, TypeVar, overload

from django.core.exceptions import ImproperlyConfigured
from django.views.decorators.debug import sensitive_variables

from django_delayq.clock import duration_us
from django_delayq.conf.spelling import did_you_mean
from django_delayq.job.job import DEFAULT_QUEUE
from django_delayq.job.retry import RetryPolicy
from django_delayq.recurring.declaration import SCHEDULE_OPTIONS, Recurring, read_recurring
from django_delayq.task import registry
from django_delayq.task.arguments import check_arguments, signature
from django_delayq.task.options.argument_function import ArgumentFunction, check_argument_function
from django_delayq.task.options.expiry import Expires, OnExpiry, expiry_times
from django_delayq.task.options.limits import NO_LIMITS, LimitOption, OnLimit
from django_delayq.task.options.task_options import AlreadyDone, RetryDelay, Unique, Until, result_ttl_us
from django_delayq.task.sensitive import Sensitive, check_sensitive
from django_delayq.task.task import Task

#: Option of `using()`, of Django's tasks or of Celery's -> what to write here.
_INSTEAD = {
    **dict.fromkeys(
        ("delay", "at", "run_after", "countdown", "eta", "database"),
        "it is an option of single jobs: task.using(delay=60).enqueue(…)",
    ),
    **dict.fromkeys(
        (option for option in SCHEDULE_OPTIONS if option not in ("every", "cron", "tz")),
        "it is an option of a schedule: recurring=[Recurring(…)]",
    ),
    "queue_name": "write queue=",
    "bind": "the function gets no self: current_job() has the id and the attempt, and raise RetryLater(60) retries",
    "base": "the code around every run is a middleware, in DELAYQ['MIDDLEWARE']",
    "autoretry_for": "write retry=RetryPolicy(retry_on=…)",
    "dont_autoretry_for": "write retry=RetryPolicy(dead_on=…)",
    "max_retries": "write retry=RetryPolicy(max_attempts=…), which counts the first attempt too",
    "max_attempts": "write retry=RetryPolicy(max_attempts=…)",
    "default_retry_delay": "write retry=RetryPolicy(delays=[…])",
    **dict.fromkeys(
        ("retry_kwargs", "retry_backoff", "retry_backoff_max", "retry_jitter"),
        "write retry=RetryPolicy(max_attempts=…, base=…, cap=…), whose delays grow at random",
    ),
    **dict.fromkeys(
        ("acks_late", "acks_on_failure_or_timeout", "reject_on_worker_lost"),
        "leave it out: every job is acknowledged after its run, and runs again if its worker dies",
    ),
    "ignore_result": "leave it out: a result is kept only with store_result=True",
    "track_started": "leave it out: a handle's state is always 'claimed' while the job runs",
    "serializer": "leave it out: arguments are JSON",
    "rate_limit": "write limit=…, and the rate in DELAYQ['LIMITS']; it holds for all workers together",
    "time_limit": "write hard_timeout=, which kills the process with --pool processes",
    "soft_time_limit": "write timeout=, which raises TaskTimeout in the task",
}

P = ParamSpec("P")
R = TypeVar("R")


class SensitiveTask(Task[P, R]):
    """A task whose arguments do not appear in Django's error reports: the frames of these methods show no variables.

    A class of its own, so that other tasks are not slower.
    """

    @sensitive_variables()
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function directly, without a job."""
        return self.callable(*args, **kwargs)

    @cached_property
    def callable(self) -> Callable[P, R]:
        """The function that a worker calls; error reports hide its sensitive parameters, not its other variables."""
        return sensitive_variables(*(() if isinstance(self.sensitive, bool) else self.sensitive))(self.func)

    job = sensitive_variables()(Task.job)
    enqueue = sensitive_variables()(Task.enqueue)
    aenqueue = sensitive_variables()(Task.aenqueue)
    enqueue_many = sensitive_variables()(Task.enqueue_many)
    aenqueue_many = sensitive_variables()(Task.aenqueue_many)
    _make_item = sensitive_variables()(Task._make_item)
    _make = sensitive_variables()(Task._make)
    _amake = sensitive_variables()(Task._amake)
    _draft = sensitive_variables()(Task._draft)
    _new = sensitive_variables()(Task._new)
    _in_context = sensitive_variables()(Task._in_context)
    _unsent = sensitive_variables()(Task._unsent)


@overload
def delayed_task(func: Callable[P, R], /) -> Task[P, R]: ...


@overload
def delayed_task(
    *,
    queue: str = ...,
    priority: int = ...,
    retry: RetryPolicy | None = ...,
    retry_delay: RetryDelay | None = ...,
    timeout: float | timedelta | None = ...,
    hard_timeout: float | timedelta | None = ...,
    name: str | None = ...,
    aliases: Sequence[str] = ...,
    already_done: AlreadyDone | None = ...,
    on_commit: bool | None = ...,
    store_result: bool | float | timedelta = ...,
    sensitive: Sensitive | Sequence[str] = ...,
    key: str | ArgumentFunction | None = ...,
    unique: Unique = ...,
    until: Until = ...,
    tenant: str | ArgumentFunction | None = ...,
    expires: Expires | None = ...,
    on_expiry: OnExpiry = ...,
    limit: LimitOption | None = ...,
    cost: int = ...,
    on_limit: OnLimit = ...,
    every: float | timedelta | None = ...,
    cron: str | None = ...,
    tz: str | tzinfo | None = ...,
    recurring: Iterable[Recurring] = ...,
) -> Callable[[Callable[P, R]], Task[P, R]]: ...


def delayed_task(
    func: Any = None,
    /,
    *,
    queue: str = DEFAULT_QUEUE,
    priority: int = 0,
    retry: RetryPolicy | None = None,
    retry_delay: RetryDelay | None = None,
    timeout: float | timedelta | None = None,
    hard_timeout: float | timedelta | None = None,
    name: str | None = None,
    aliases: Sequence[str] = (),
    already_done: AlreadyDone | None = None,
    on_commit: bool | None = None,
    store_result: bool | float | timedelta = False,
    sensitive: Sensitive | Sequence[str] = (),
    key: str | ArgumentFunction | None = None,
    unique: Unique = "keep",
    until: Until = "finish",
    tenant: str | ArgumentFunction | None = None,
    expires: Expires | None = None,
    on_expiry: OnExpiry = "drop",
    limit: LimitOption | None = None,
    cost: int = 1,
    on_limit: OnLimit = "wait",
    every: float | timedelta | None = None,
    cron: str | None = None,
    tz: str | tzinfo | None = None,
    recurring: Iterable[Recurring] = (),
    **others: Any,
) -> Any:
    """Register a function as a task; the options apply to its jobs unless `using()` changes them.

    `name` is the name in stored jobs, the import path of the function by default. `aliases` are former names, so that
    waiting jobs survive a renaming. `retry_delay` is called in the worker with the number of a failed attempt and its
    exception; it returns the seconds or timedelta until the next one, or None for the delay of `retry`. `already_done`
    is called with the arguments of a job whose last run was cut off by a crash, a lost lease or the stop of its worker;
    if it returns true, the job is acknowledged without another run.
    `store_result` keeps the return value, for RESULT_TTL (True) or for the given time (seconds or timedelta).
    `sensitive` names parameters whose values are hidden in the admin, logs, reprs and Django's error reports; True
    hides all. They are stored in Redis unchanged, and so is the message of an exception that the task raises.
    `key` is the unique key of its jobs: text, or a function that returns text or None given those arguments of the task
    that it names. `unique` and `until` say what a held key means and how long it is held, as in `using()`. `tenant` is
    the name of the tenant of its jobs, text or such a function; without one, that of `with tenant(…)`. `expires` is in
    seconds or a timedelta after the due time, or an aware datetime: a job that would begin later ends as expired, or as
    a dead letter with `on_expiry="dead"`. `limit` names the limits of DELAYQ["LIMITS"] under which its jobs run; `cost`
    and `on_limit` are as in `using()`. The value of a limit may be a function of the arguments.
    A task with `every` (seconds or a timedelta) or `cron` (fields in the time zone `tz`, by default TIME_ZONE) gets a
    job at each of these times; `recurring` lists more such schedules, with names, arguments and options.

    Raises ImproperlyConfigured if a worker could not find or run the function or its name is taken, and ValueError or
    TypeError for invalid options.
    """

    for option in others:
        raise TypeError(_unknown(option))

    def decorate(func: Callable[P, R]) -> Task[P, R]:
        _check_function(func, named=name is not None)
        _check_names(name, aliases)
        _check_already_done(already_done)
        hidden = check_sensitive(func, sensitive)
        given = {"key": key, "tenant": tenant}
        functions = {name: each for name, each in given.items() if each is not None and not isinstance(each, str)}
        for name_of_option, each in functions.items():
            check_argument_function(each, signature(func), name=name_of_option)
        limits = NO_LIMITS.changed(limit, cost, on_limit)
        limits.check_functions(signature(func))
        schedules = read_recurring(every=every, cron=cron, tz=tz, recurring=recurring)
        for schedule in schedules:
            check_arguments(list(schedule.args), dict(schedule.kwargs or {}), show_keys=not hidden)
        task = (SensitiveTask if hidden else Task)(
            func=func,
            name=name or f"{func.__module__}.{func.__qualname__}",
            queue=queue,
            priority=priority,
            retry=retry,
            retry_delay=retry_delay,
            timeout_us=None if timeout is None else duration_us(timeout, name="timeout"),
            hard_timeout_us=None if hard_timeout is None else duration_us(hard_timeout, name="hard_timeout"),
            aliases=tuple(aliases),
            already_done=already_done,
            on_commit=on_commit,
            result_ttl_us=result_ttl_us(store_result),
            sensitive=hidden,
            key=key if isinstance(key, str) else None,
            key_of=functions.get("key"),
            tenant=tenant if isinstance(tenant, str) else None,
            tenant_of=functions.get("tenant"),
            unique=unique,
            until=until,
            expires=None if expires is None else expiry_times(expires),
            on_expiry=on_expiry,
            limits=limits,
            recurring=schedules,
        )
        task.check_recurring()
        registry.register(task)
        return task

    return decorate if func is None else decorate(func)


def _unknown(option: str) -> str:
    """Return the error about an option that `@delayed_task` does not have; type checkers report it too."""
    known = [
        name for name, each in inspect.signature(delayed_task).parameters.items() if each.kind is each.KEYWORD_ONLY
    ]
    if option in _INSTEAD:
        return f"@delayed_task has no option {option!r}: {_INSTEAD[option]}"
    return f"@delayed_task has no option {option!r:.80}{did_you_mean(option, known)}; it has {', '.join(known)}"


def _check_names(name: Any, aliases: Any) -> None:
    if name is not None and (not isinstance(name, str) or not name):
        raise ValueError(f"name must be a non-empty string, got {type(name).__name__}")
    if not isinstance(aliases, (list, tuple)) or not all(isinstance(alias, str) and alias for alias in aliases):
        raise ValueError(f"aliases must be a list or tuple of names, got {aliases!r:.80}")


def _check_already_done(func: Any) -> None:
    if func is not None and not callable(func):
        raise TypeError(f"already_done must be a function, got {type(func).__name__}")


def _check_function(func: Any, *, named: bool) -> None:
    """Raise ImproperlyConfigured for a function that a worker could not find by a stored name."""
    name = getattr(func, "__qualname__", repr(func))
    if not inspect.isfunction(func):
        raise ImproperlyConfigured(f"@delayed_task needs a plain function, got {type(func).__name__} {name}")
    if func.__name__ == "<lambda>":
        raise ImproperlyConfigured(
            f"@delayed_task cannot take a lambda ({func.__module__}); define a function with a name"
        )
    if "." in name:
        kind = "nested function" if "<locals>" in name else "method"
        raise ImproperlyConfigured(
            f"@delayed_task cannot take the {kind} {func.__module__}.{name}: a worker could not find it; "
            f"move it to module level"
        )
    if func.__module__ == "__main__" and not named:
        raise ImproperlyConfigured(
            f"@delayed_task cannot take {name} of the module __main__: a worker could not find it by that name; "
            f"move it to tasks.py of an app, or give name="
        )
    if inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func):
        raise ImproperlyConfigured(
            f"@delayed_task cannot take the generator {func.__module__}.{name}: a worker would not iterate it"
        )
