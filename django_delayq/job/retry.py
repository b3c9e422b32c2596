"""RetryPolicy: how often a job may run, after which errors, and how long it waits in between.

It is data inside the job. So a dispatcher can judge an expired lease without the project's code, and an old job keeps
the policy with which it was enqueued. Exceptions are therefore paths of classes, and nothing here imports them.
"""

import builtins
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from typing import Any, cast

from django_delayq.clock import LONGEST_DELAY_US, duration_us
from django_delayq.exceptions import DelayValueError

MAX_ATTEMPTS = 1_000
#: The longest of the `delays`. A policy does not know MAX_DELAY: it may itself be part of the settings.
LONGEST_DELAY = timedelta(microseconds=LONGEST_DELAY_US)
Exceptions = type[BaseException] | str | Sequence[type[BaseException] | str]


class _Default:
    """The default of a field that depends on other fields. Signatures show it as `...`, as stub files do."""

    def __repr__(self) -> str:
        return "..."


#: The default of `max_attempts`, which depends on `delays`.
_DEFAULT: Any = _Default()
_DEFAULT_ATTEMPTS = 5


class ClassPath(str):
    """The path of a class that this process has already resolved."""

    __slots__ = ()


def class_path(kind: type) -> str:
    """Return "module.qualname" of a class."""
    return f"{kind.__module__}.{kind.__qualname__}"


def lineage_of(kind: type) -> tuple[tuple[str, ...], ...]:
    """Return the paths of a class and of all its base classes by level, the class itself first.

    The level of a base class is its longest distance, so that each class is more specific than its own bases.
    """
    distances = {kind: 0}
    # In the order of the MRO: a class comes before its bases, so its distance is final.
    for each in kind.__mro__:
        for base in each.__bases__:
            distances[base] = max(distances.get(base, 0), distances.get(each, 0) + 1)
    levels: list[list[str]] = [[] for _ in range(max(distances.values()) + 1)]
    for each, distance in distances.items():
        levels[distance].append(class_path(each))
    return tuple(map(tuple, levels))


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Hold the rules: how often a job runs, after which errors, and after which delay.

    The wait before attempt n+1 is drawn evenly from 0 … min(cap, base·2^(n−1)): "full jitter", after Marc Brooker,
    "Exponential Backoff And Jitter", AWS Architecture Blog, 2015. `delays` replaces it by exact waits.
    """

    #: Most attempts, 1 to 1,000; None means no limit. A crash is an attempt. The default is 5, or one more than the
    #: number of `delays`.
    max_attempts: int | None = _DEFAULT
    #: Longest wait before the second attempt: seconds or timedelta, stored as timedelta.
    base: timedelta | float = timedelta(seconds=2)
    #: Longest wait before any attempt: seconds or timedelta, stored as timedelta.
    cap: timedelta | float = timedelta(hours=1)
    #: Whether a job is tried again after an exception; after a crash or lost lease it always is.
    on_error: bool = True
    #: Exceptions that lead to another attempt, subclasses included; no others do then. Classes or dotted paths, stored
    #: as paths.
    retry_on: Exceptions = ()
    #: Exceptions that lead to none, in the same forms. Of a class in each list the more specific one decides, and
    #: `dead_on` if they are equally specific.
    dead_on: Exceptions = ()
    #: Exact waits of at most 3,650 days, as seconds or timedeltas, stored as timedeltas; the last one repeats.
    delays: Sequence[timedelta | float] = ()

    def __post_init__(self) -> None:
        if isinstance(self.delays, (str, bytes)) or not isinstance(self.delays, Sequence):
            raise ValueError(f"delays must be a list of seconds or timedeltas, got {type(self.delays).__name__}")
        if len(self.delays) >= MAX_ATTEMPTS:
            raise ValueError(f"delays must be fewer than {MAX_ATTEMPTS:,}, got {len(self.delays):,}; the last repeats")
        if self.max_attempts is _DEFAULT:
            object.__setattr__(self, "max_attempts", len(self.delays) + 1 if self.delays else _DEFAULT_ATTEMPTS)
        number = self.max_attempts
        if number is not None and (isinstance(number, bool) or not isinstance(number, int)):
            raise ValueError(f"max_attempts must be a whole number, or None forever, got {type(number).__name__}")
        if number is not None and not 1 <= number <= MAX_ATTEMPTS:
            raise ValueError(f"max_attempts must be 1 to {MAX_ATTEMPTS:,}, or None forever, got {number}")
        if not isinstance(self.on_error, bool):
            raise ValueError(f"on_error must be True or False, got {type(self.on_error).__name__}")
        for name in ("base", "cap"):
            object.__setattr__(self, name, _delay(getattr(self, name), name=name))
        if self.delays:
            delays = tuple(_exact_delay(value, name=f"delays[{at}]") for at, value in enumerate(self.delays))
            object.__setattr__(self, "delays", delays)
        elif self.delays != ():
            raise ValueError("delays must have at least one delay; leave it out for delays that grow at random")
        for name in ("retry_on", "dead_on"):
            if (value := getattr(self, name)) != ():
                object.__setattr__(self, name, _paths(value, name=name))

    @property
    def has_rules(self) -> bool:
        """Whether the class of an exception decides."""
        return bool(self.retry_on or self.dead_on)

    def delay_us(self, ended: int, jitter: float) -> int:
        """Return the wait in µs after `ended` attempts (≥ 1); `jitter` is drawn from [0, 1)."""
        if self.delays:
            return duration_us(self.delays[min(ended, len(self.delays)) - 1])
        base, cap = duration_us(self.base), duration_us(self.cap)
        return int(min(cap, base << min(ended - 1, 62)) * jitter)

    def allows(self, attempt: int) -> bool:
        """Return whether another attempt may follow this one."""
        return self.max_attempts is None or attempt < self.max_attempts

    def retries(self, lineage: Sequence[Sequence[str]]) -> bool:
        """Return whether an exception leads to another attempt.

        `lineage` is that of its class, as `lineage_of()` returns it; it is empty if no exception of the task ended the
        attempt.
        """
        retry_on, dead_on = cast("tuple[str, ...]", self.retry_on), cast("tuple[str, ...]", self.dead_on)
        for level in lineage:
            if any(path in dead_on for path in level):
                return False
            if any(path in retry_on for path in level):
                return True
        return self.on_error and not (lineage and retry_on)


def _delay(value: timedelta | float, *, name: str) -> timedelta:
    us = duration_us(value, name=name)
    try:
        return timedelta(microseconds=us)
    except OverflowError as error:
        raise DelayValueError(f"{name} is longer than a timedelta can be; use a shorter one") from error


def _exact_delay(value: timedelta | float, *, name: str) -> timedelta:
    if (delay := _delay(value, name=name)) > LONGEST_DELAY:
        raise DelayValueError(f"{name} is longer than {LONGEST_DELAY.days:,} days; use a shorter one")
    return delay


def _paths(value: Any, *, name: str) -> tuple[str, ...]:
    given = [value] if isinstance(value, (str, type)) else value
    if not isinstance(given, (list, tuple, set, frozenset)):
        raise ValueError(f"{name} must be exception classes or dotted paths of them, got {type(value).__name__}")
    return tuple(dict.fromkeys(_path(each, name=name) for each in given))


def _path(value: Any, *, name: str) -> str:
    if isinstance(value, type) and issubclass(value, BaseException):
        return ClassPath(class_path(value))
    if not isinstance(value, str):
        shown = class_path(value) if isinstance(value, type) else type(value).__name__
        raise ValueError(f"{name} must have exception classes or dotted paths of them, got {shown}")
    if "." not in value:
        found = getattr(builtins, value, None)
        if isinstance(found, type) and issubclass(found, BaseException):
            return ClassPath(class_path(found))
        near = get_close_matches(value, [each for each in vars(builtins) if each[:1].isupper()], n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ValueError(
            f"{name} has {value!r:.80}, which is no builtin exception{hint}; "
            f"pass the class, or its dotted path such as 'shop.errors.Declined'"
        )
    if not all(part.isidentifier() or part == "<locals>" for part in value.split(".")):
        raise ValueError(f"{name} has {value!r:.80}, which is no dotted path; write 'shop.errors.Declined'")
    return value
