"""Options: values that options of a task may have: expiry, functions for keys and delays, time of a result.

A key function takes those parameters of the task that it names.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta
from functools import lru_cache
from inspect import Parameter, Signature
from typing import Any, Literal, NamedTuple, NoReturn

from django.views.decorators.debug import sensitive_variables

from django_delayq import runtime
from django_delayq.clock import LATEST_US, duration_us, estimated_us, moment, moment_us
from django_delayq.conf.spelling import did_you_mean
from django_delayq.conf.validators import check_name
from django_delayq.exceptions import DelayTypeError, DelayValueError, InvalidMoment
from django_delayq.job.job import Expiry
from django_delayq.job.unsent import Debounce

#: Seconds or a timedelta after the due time, or an aware datetime.
Expires = float | timedelta | datetime
#: What becomes of an expired job: it ends as expired, or as a dead letter.
OnExpiry = Literal["drop", "dead"]
#: Returns the unique key of a job, or None for none, given those arguments of the task that it names.
KeyFunction = Callable[..., str | None]
#: What happens if another job holds the key: its handle is returned, `KeyHeld` raised, or a waiting job replaced.
UniqueWord = Literal["keep", "reject", "replace"]
Unique = UniqueWord | Debounce
#: Until when a job holds its key: until it has ended, or only until its first attempt begins.
Until = Literal["finish", "start"]
#: Returns whether an earlier run did the work, given the arguments of the job.
AlreadyDone = Callable[..., bool | Awaitable[bool]]
#: Returns the delay of the next attempt, None for that of the policy, given the failed one's number and exception.
RetryDelay = Callable[[int, BaseException], float | timedelta | None]
#: Shortest time that a result is kept, in µs: Redis counts it in whole ms.
_MIN_RESULT_TTL_US = 1_000
#: Bounded, because a caller may make a function for each job.
_signature = lru_cache(maxsize=1_024)(inspect.signature)


class AbsentMethod:
    """A method that tasks of other task queues have. Reading it is an AttributeError that says what to write here.

    Not `__getattr__()`: Django reads attributes that tasks lack for each signal.
    """

    def __init__(self, instead: str) -> None:
        self._instead = instead

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, task: Any, owner: type) -> NoReturn:
        of = "a task" if task is None else f"the task {task.name}"
        raise AttributeError(f"{of} has no {self._name}(): {self._instead}", name=self._name, obj=task)


_NO_CHAINS = "write task.job(…) for enqueue_many(); instead of a chain, a task enqueues the next one at its end"


class AbsentMethods:
    """Methods that tasks of other task queues have, and tasks of `@delayed_task` do not."""

    delay = AbsentMethod("write task.enqueue(…) with the same arguments, or task.after(60).enqueue(…) for a delay")
    apply_async = AbsentMethod("write task.using(delay=60, queue=…, expires=…).enqueue(*args, **kwargs), as you need")
    send = AbsentMethod("write task.enqueue(…) with the same arguments")
    schedule = AbsentMethod("write task.after(60).enqueue(…), or task.at(moment).enqueue(…)")
    delay_on_commit = AbsentMethod("write task.enqueue(…): inside a transaction the job is sent after the commit")
    apply = AbsentMethod("write task(…), which calls the function here and now")
    s = AbsentMethod(_NO_CHAINS)
    si = AbsentMethod(_NO_CHAINS)


class ExpiryTimes(NamedTuple):
    """The `expires` of a task: µs after the due time, or µs since the epoch. The other one is None."""

    span_us: int | None = None
    moment_us: int | None = None


def expiry_times(expires: Any, *, name: str = "expires") -> ExpiryTimes:
    """Convert `expires`: seconds or a timedelta after the due time, or an aware datetime.

    Raises `DelayTypeError`, `DelayValueError` and `InvalidMoment`, with the argument's `name`.
    """
    if isinstance(expires, datetime):
        return ExpiryTimes(moment_us=moment_us(expires, name=name))
    if isinstance(expires, bool) or not isinstance(expires, int | float | timedelta):
        raise DelayTypeError(
            f"{name} must be a number of seconds, a timedelta, or an aware datetime, got {type(expires).__name__}"
        )
    if expires < timedelta() if isinstance(expires, timedelta) else expires < 0:
        raise DelayValueError(
            f"{name} must not be negative: it counts from the due time; leave it out for a job that never expires"
        )
    span_us = duration_us(expires, name=name)
    if not 0 < span_us <= LATEST_US:
        raise DelayValueError(
            f"{name} must be more than 0 seconds after the due time, and before the year 2255; "
            f"leave it out for a job that never expires"
        )
    return ExpiryTimes(span_us=span_us)


def make_expiry(task: Any, expires: ExpiryTimes, due_us: int | None) -> Expiry:
    """Return the expiry of a job that is made now; the moment of a span is computed again when the job is sent.

    `due_us` is its due time in µs since the epoch, None for the delay of the task. Raises `InvalidMoment` if the job
    would have expired when it is due.
    """
    now_us = estimated_us(runtime.current().clock)
    due_us = now_us + (task.wait_us or 0) if due_us is None else max(now_us, due_us)
    if expires.moment_us is not None and expires.moment_us <= due_us:
        raise InvalidMoment(
            f"expires must be later than the due time, {moment(due_us)}, got {moment(expires.moment_us)}: "
            f"such a job of {task.name} could never begin"
        )
    dead = task.on_expiry == "dead"
    return Expiry(moment_us=expires.moment_us or 0, span_us=expires.span_us, dead=dead).from_due(due_us)


def check_key_function(func: Any, of: Signature, *, name: str = "key") -> None:
    """Raise TypeError or ValueError if the function cannot compute keys for a task with this signature."""
    if not callable(func):
        raise TypeError(f"{name} must be text, or a function of the task's arguments, got {type(func).__name__}")
    open_ended = any(each.kind is Parameter.VAR_KEYWORD for each in of.parameters.values())
    _check(func, tuple(of.parameters), open_ended, name)


@sensitive_variables()
def compute_key(func: KeyFunction, of: Signature, args: Iterable[Any], kwargs: dict[str, Any], *, task: str) -> Any:
    """Return the unique key of a job with these arguments; defaults of the task are filled in.

    Raises TypeError if the arguments do not fit the task, ValueError for a key that is no text of 1 to 200 bytes, and
    what the function raises.
    """
    bound = of.bind(*args, **kwargs)
    bound.apply_defaults()
    values = bound.arguments
    for name, parameter in of.parameters.items():
        if parameter.kind is Parameter.VAR_KEYWORD:
            values = {**values[name], **values}
    parameters = _signature(func).parameters
    if not any(each.kind is Parameter.VAR_KEYWORD for each in parameters.values()):
        values = {name: value for name, value in values.items() if name in parameters}
    try:
        key = func(**values)
    except StopIteration as error:
        # An iterator that makes jobs would end here, and the rest would be lost without a word.
        raise RuntimeError(f"the key= function of {task} raised StopIteration; give next() a default") from error
    except Exception as error:
        error.add_note(f"This was raised by the key= function of {task}.")
        raise
    return None if key is None else check_name(key, name=f"the key of {task}")


# Django's own tasks are checked at each enqueue, because settings may name the function.
@lru_cache(maxsize=1_024)
def _check(func: Any, names: tuple[str, ...], open_ended: bool, label: str) -> None:
    if inspect.iscoroutinefunction(func):
        raise TypeError(f"{label} must be a plain function, not async def: it is called where jobs are enqueued")
    try:
        parameters = _signature(func).parameters
    except (ValueError, TypeError) as error:
        raise ValueError(f"{label} must be a function whose parameters Python can read; wrap it in a lambda") from error
    for name, parameter in parameters.items():
        if parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.POSITIONAL_ONLY):
            raise ValueError(
                f"{label} is a function with the positional parameter {name!r}; it is called by name, so name those "
                f"parameters of the task that the key needs"
            )
        is_optional = parameter.default is not Parameter.empty or parameter.kind is Parameter.VAR_KEYWORD
        if name not in names and not is_optional and not open_ended:
            raise ValueError(
                f"{label} is a function of {name!r}, which is no parameter of the task{did_you_mean(name, names)}"
            )


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
        parameters = _signature(func)
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
