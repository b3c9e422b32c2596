"""Task options: the types of their values, what they change of a task, and the checks of those that no job can have."""

import inspect
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Literal, get_args

from django_delayq.clock import duration_us
from django_delayq.conf.settings import get_config
from django_delayq.conf.spelling import one_of
from django_delayq.conf.validators import check_name
from django_delayq.job.job import MAX_PRIORITY, MIN_PRIORITY
from django_delayq.job.retry import RetryPolicy
from django_delayq.job.unsent import Debounce, Throttle
from django_delayq.task.options.expiry import OnExpiry, expiry_times
from django_delayq.task.options.limits import LimitOptions

#: What happens if another job holds the key: its handle is returned, `KeyHeld` raised, or a waiting job replaced.
UniqueWord = Literal["keep", "reject", "replace"]
Unique = UniqueWord | Debounce | Throttle
#: Until when a job holds its key: until it has ended, or only until its first attempt begins.
Until = Literal["finish", "start"]
#: Returns whether an earlier run did the work, given the arguments of the job.
AlreadyDone = Callable[..., bool | Awaitable[bool]]
#: Returns the delay of the next attempt, None for that of the policy, given the failed one's number and exception.
RetryDelay = Callable[[int, BaseException], float | timedelta | None]
#: Shortest time that a result is kept, in µs: Redis counts it in whole ms.
_MIN_RESULT_TTL_US = 1_000
#: Options that are fields of a task as they are.
_FIELDS = ("key", "unique", "until", "retry", "priority", "on_commit", "database", "on_expiry", "tenant")


def result_ttl_us(value: bool | float | timedelta) -> int | None:
    """Convert `store_result` to µs: None for False, 0 for True, which means RESULT_TTL.

    Raises `DelayTypeError`, `DelayValueError` and ValueError.
    """
    if isinstance(value, bool):
        return 0 if value else None
    ttl_us = duration_us(value, name="store_result")
    if not _MIN_RESULT_TTL_US <= ttl_us < 2**53:
        raise ValueError("store_result must be True, False, or a time of at least 1 ms for which the result is kept")
    return ttl_us


def changed_fields(limits: LimitOptions, options: dict[str, Any]) -> dict[str, Any]:
    """Return the changed fields of a task that has these limits; options that are None change nothing.

    Raises TypeError, ValueError, `InvalidDelay`, `InvalidMoment` and `UnknownQueue`.
    """
    given = {name: value for name, value in options.items() if value is not None}
    changes = {name: given[name] for name in _FIELDS if name in given}
    if "at" in given and "run_after" in given:
        raise TypeError("at and run_after mean the same; give one of them")
    time = given.get("at", given.get("run_after"))
    if "delay" in given or time is not None:
        changes["delay_us"], changes["due_us"] = get_config().tasks.check_time(delay=given.get("delay"), at=time)
    if "queue" in given and "queue_name" in given:
        raise TypeError("queue and queue_name mean the same; give one of them")
    if "queue" in given or "queue_name" in given:
        changes["queue"] = get_config().tasks.check_queue(given.get("queue", given.get("queue_name")))
    for name in ("timeout", "hard_timeout"):
        if name in given:
            changes[f"{name}_us"] = duration_us(given[name], name=name)
    if "expires" in given:
        changes["expires"] = expiry_times(given["expires"])
    if "store_result" in given:
        changes["result_ttl_us"] = result_ttl_us(given["store_result"])
    if not given.keys().isdisjoint(("limit", "cost", "on_limit")):
        changes["limits"] = limits.changed(given.get("limit"), given.get("cost"), given.get("on_limit"))
    return changes


def check_retry_delay(func: Any, *, name: str) -> None:
    """Raise ValueError if the function cannot compute delays; `name` is what errors call it."""
    if not callable(func):
        raise ValueError(
            f"{name} must be a function of the attempt and the exception, got {type(func).__name__}; "
            f"for fixed delays use RetryPolicy(delays=…)"
        )
    if inspect.iscoroutinefunction(func):
        raise ValueError(f"{name} must be a plain function, not async def")
    try:
        parameters = inspect.signature(func)
    except (ValueError, TypeError):
        # Python cannot read the parameters of some functions in C.
        return
    try:
        parameters.bind(1, None)
    except TypeError as error:
        raise ValueError(
            f"{name} is called with the number of the failed attempt and its exception, which do not fit "
            f"{getattr(func, '__name__', type(func).__name__)}{parameters}: {error}"
        ) from error


def check_options(task: Any) -> None:
    """Raise ValueError for an option that no job can have; the error names the option."""
    number = task.priority
    if isinstance(number, bool) or not isinstance(number, int):
        raise ValueError(f"priority must be a whole number, got {type(number).__name__}")
    if not MIN_PRIORITY <= number <= MAX_PRIORITY:
        raise ValueError(f"priority must be {MIN_PRIORITY} to {MAX_PRIORITY} (larger runs first), got {number}")
    for name in ("key", "tenant"):
        if getattr(task, name) is not None:
            check_name(getattr(task, name), name=name)
    if isinstance(task.unique, Debounce) and (task.delay_us is not None or task.due_us is not None):
        raise ValueError("unique=Debounce(…) sets the due time of its jobs; leave out delay, at and run_after")
    check_common_options(task, timeout_us=task.timeout_us, hard_timeout_us=task.hard_timeout_us, label=str)
    check_name(task.queue, name="queue")


def check_common_options(
    options: Any, *, label: Callable[[str], str], timeout_us: int | None = None, hard_timeout_us: int | None = None
) -> None:
    """Raise ValueError for an option that neither kind of task can have; `label` returns an option's name in errors."""
    for name, known in (("unique", UniqueWord), ("until", Until), ("on_expiry", OnExpiry)):
        word = getattr(options, name)
        if word not in get_args(known) and not (name == "unique" and isinstance(word, Debounce | Throttle)):
            values = ", or a Debounce or Throttle" if name == "unique" else ""
            raise ValueError(f"{label(name)} must be {one_of(get_args(known))}{values}, got {word!r:.80}")
    if options.retry is not None and not isinstance(options.retry, RetryPolicy):
        raise ValueError(f"{label('retry')} must be a RetryPolicy, got {type(options.retry).__name__}")
    if options.retry_delay is not None:
        check_retry_delay(options.retry_delay, name=label("retry_delay"))
    for name, limit_us in (("timeout", timeout_us), ("hard_timeout", hard_timeout_us)):
        if limit_us == 0:
            raise ValueError(f"{label(name)} must be more than 0 seconds; leave it out for no limit")
    if timeout_us and hard_timeout_us and hard_timeout_us < timeout_us:
        raise ValueError(f"{label('hard_timeout')} must not be shorter than {label('timeout')}")
