"""Options: what those of a task may be; checked when they are given, before anything is stored."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Literal

from django_delayq.clock import duration_us
from django_delayq.conf.validators import check_name
from django_delayq.job.job import MAX_PRIORITY, MIN_PRIORITY
from django_delayq.job.retry import RetryPolicy
from django_delayq.spelling import did_you_mean

Unique = Literal["keep", "reject"]
#: Shortest time that a result is kept: Redis counts it in whole ms.
_SHORTEST_TTL_US = 1_000


def check_options(task: Any) -> None:
    """Raise for values of a task that could not work, naming the argument."""
    number = task.priority
    if isinstance(number, bool) or not isinstance(number, int):
        raise ValueError(f"priority must be a whole number, got {type(number).__name__}")
    if not MIN_PRIORITY <= number <= MAX_PRIORITY:
        raise ValueError(f"priority must be {MIN_PRIORITY} to {MAX_PRIORITY} (larger runs first), got {number}")
    if task.key is not None:
        check_name(task.key, name="key")
    _check_manners(task, timeout_us=task.timeout_us, hard_timeout_us=task.hard_timeout_us, written=str)
    check_name(task.queue, name="queue")


def result_ttl_us(value: bool | float | timedelta) -> int | None:
    """Return for how many µs `store_result` keeps a result: None for False, 0 for True, which is RESULT_TTL.

    Raises `DelayTypeError`, `DelayValueError` and ValueError.
    """
    if isinstance(value, bool):
        return 0 if value else None
    ttl_us = duration_us(value, name="store_result")
    if not _SHORTEST_TTL_US <= ttl_us < 2**53:
        raise ValueError("store_result must be True, False, or a time from 1 ms on for which the result is kept")
    return ttl_us


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """What a task of Django's may be given beyond its contract."""

    retry: RetryPolicy | None = None
    #: Seconds or timedelta.
    timeout: float | timedelta | None = None
    hard_timeout: float | timedelta | None = None
    #: What its jobs are unique by: text, or a function of a job's arguments that returns it (None: not unique).
    key: str | Callable[..., str | None] | None = None
    unique: Unique = "keep"

    @classmethod
    def read(cls, value: Any, *, of: str) -> "TaskOptions":
        """Return options from a dict. Raises ValueError, and `DelayTypeError` for times; both name the place."""
        known = [field.name for field in fields(cls)]
        if not isinstance(value, Mapping):
            raise ValueError(f"{of} must be a dict of {', '.join(known)}, got {type(value).__name__}")
        for name in value:
            if name not in known:
                raise ValueError(f"{of} has the unknown key {name!r:.80}{did_you_mean(name, known)}")
        options = cls(**value)

        def written(name: str) -> str:
            return f"{of}[{name!r}]"

        limits_us = {
            f"{name}_us": duration_us(value[name], name=written(name))
            for name in ("timeout", "hard_timeout")
            if value.get(name) is not None
        }
        _check_manners(options, **limits_us, written=written)
        if options.key is not None and not callable(options.key):
            check_name(options.key, name=written("key"))
        return options


NO_OPTIONS = TaskOptions()


def _check_manners(
    options: Any,
    *,
    timeout_us: int | None = None,
    hard_timeout_us: int | None = None,
    written: Callable[[str], str],
) -> None:
    """Raise for what no task of either door can have; `written` tells how an option was named where it was given."""
    if options.unique not in ("keep", "reject"):
        raise ValueError(f"{written('unique')} must be 'keep' or 'reject', got {options.unique!r:.80}")
    if options.retry is not None and not isinstance(options.retry, RetryPolicy):
        raise ValueError(f"{written('retry')} must be a RetryPolicy, got {type(options.retry).__name__}")
    for name, limit_us in (("timeout", timeout_us), ("hard_timeout", hard_timeout_us)):
        if limit_us == 0:
            raise ValueError(f"{written(name)} must be more than 0 seconds; leave it out for no limit")
    if timeout_us and hard_timeout_us and hard_timeout_us < timeout_us:
        raise ValueError(f"{written('hard_timeout')} must not be shorter than {written('timeout')}")
