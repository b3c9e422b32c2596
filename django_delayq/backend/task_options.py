"""Task options: what a task of Django's can have beyond its contract, from `OPTIONS["TASKS"]` and `delayq=`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta, tzinfo
from typing import Any

from django_delayq.clock import duration_us
from django_delayq.conf.exception_classes import resolve
from django_delayq.conf.spelling import did_you_mean
from django_delayq.conf.validators import check_name
from django_delayq.job.retry import RetryPolicy
from django_delayq.recurring.declaration import Recurring, read_recurring
from django_delayq.task.options.argument_function import ArgumentFunction
from django_delayq.task.options.expiry import Expires, OnExpiry, expiry_times
from django_delayq.task.options.limits import NO_LIMITS, LimitOption, OnLimit
from django_delayq.task.options.task_options import AlreadyDone, RetryDelay, Unique, Until, check_common_options


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """The options of one `@task` function."""

    retry: RetryPolicy | None = None
    #: Returns the delay of the next attempt, given the number of the failed one and its exception.
    retry_delay: RetryDelay | None = None
    #: Called with the arguments of a job whose last run was cut off; if it returns true, the job has succeeded.
    already_done: AlreadyDone | None = None
    #: Seconds or timedelta.
    timeout: float | timedelta | None = None
    hard_timeout: float | timedelta | None = None
    #: The unique key of its jobs: text, or a function that returns it given the arguments of a job (None: no key).
    key: str | ArgumentFunction | None = None
    unique: Unique = "keep"
    until: Until = "finish"
    #: The name of its jobs' tenant: text, or a function that returns it given the arguments of a job.
    tenant: str | ArgumentFunction | None = None
    #: Seconds or timedelta after the due time, or an aware datetime.
    expires: Expires | None = None
    on_expiry: OnExpiry = "drop"
    #: The limits under which its jobs run; the value of one may be a function of the arguments.
    limit: LimitOption | None = None
    cost: int = 1
    on_limit: OnLimit = "wait"
    #: Its recurring schedules: seconds or timedelta, or cron fields and their time zone, and a list of others.
    every: float | timedelta | None = None
    cron: str | None = None
    tz: str | tzinfo | None = None
    recurring: Iterable[Recurring] = ()

    @property
    def schedules(self) -> tuple[Recurring, ...]:
        """The schedules of these four options. Raises `InvalidSchedule`."""
        return read_recurring(every=self.every, cron=self.cron, tz=self.tz, recurring=self.recurring)

    @classmethod
    def read(cls, value: Any, *, of: str, is_final: bool = False) -> "TaskOptions":
        """Return the options in a dict; `of` names the dict in errors. Raises ValueError and `DelayTypeError`.

        With `is_final`, a module of an exception that fails to be imported is an error.
        """
        known = [field.name for field in fields(cls)]
        if not isinstance(value, Mapping):
            raise ValueError(f"{of} must be a dict of {', '.join(known)}, got {type(value).__name__}")
        for name in value:
            if name not in known:
                raise ValueError(f"{of} has the unknown key {name!r:.80}{did_you_mean(name, known)}")
        options = cls(**value)

        def label(name: str) -> str:
            return f"{of}[{name!r}]"

        limits_us = {
            f"{name}_us": duration_us(value[name], name=label(name))
            for name in ("timeout", "hard_timeout")
            if value.get(name) is not None
        }
        if options.expires is not None:
            expiry_times(options.expires, name=label("expires"))
        check_common_options(options, **limits_us, label=label)
        if options.retry is not None and options.retry.has_rules:
            resolve(options.retry, name=label("retry"), is_final=is_final)
        if options.already_done is not None and not callable(options.already_done):
            raise ValueError(f"{label('already_done')} must be a function, got {type(options.already_done).__name__}")
        for name in ("key", "tenant"):
            if (given := getattr(options, name)) is not None and not callable(given):
                check_name(given, name=label(name))
        try:
            NO_LIMITS.changed(options.limit, options.cost, options.on_limit)
            _ = options.schedules
        except (TypeError, ValueError) as error:
            raise ValueError(f"{of}: {error}") from error
        return options


NO_OPTIONS = TaskOptions()
