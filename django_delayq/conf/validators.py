"""Readers: what the value of a setting may be, and what it becomes. Each raises ValueError, naming the setting."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from django_delayq.clock import SECOND_US, duration_us
from django_delayq.conf.config import DAY_US, check_name
from django_delayq.job.retry import RetryPolicy


def duration(*, minimum_us: int = 0, maximum_us: int = 3_650 * DAY_US) -> Callable[[str, Any], int]:
    """Return a reader of seconds or a timedelta within bounds, as µs."""

    def read(key: str, value: Any) -> int:
        us = duration_us(value, name=key)
        if us < minimum_us:
            raise ValueError(f"{key} must be at least {minimum_us / SECOND_US:g} s, got {us / SECOND_US:g} s")
        if us > maximum_us:
            raise ValueError(f"{key} must be at most {maximum_us / SECOND_US:g} s")
        return us

    return read


def timeout(key: str, value: Any) -> float:
    """Return seconds, 10 ms to a day."""
    return duration(minimum_us=10_000, maximum_us=DAY_US)(key, value) / SECOND_US


def integer(minimum: int, maximum: int) -> Callable[[str, Any], int]:
    """Return a reader of whole numbers within bounds."""

    def read(key: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"{key} must be a whole number, got {type(value).__name__}")
        if not minimum <= value <= maximum:
            raise ValueError(f"{key} must be {minimum:,} to {maximum:,}, got {value:,}")
        return value

    return read


def prefix(key: str, value: Any) -> str:
    """Return what may stand in front of every key."""
    check_name(value, name=key)
    if set(value) & set("{}*?[]\\ \r\n") or not value.isprintable():
        raise ValueError(f"{key} must be printable text without braces, wildcards or spaces, got {value!r}")
    return str(value)


def modules(key: str, value: Any) -> tuple[str, ...]:
    """Return dotted paths of modules."""
    if not isinstance(value, list | tuple) or not all(isinstance(part, str) for part in value):
        raise ValueError(f"{key} must be a list of dotted module paths, got {value!r:.80}")
    return tuple(value)


def boolean(key: str, value: Any) -> bool:
    """Return True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"{key} must be True or False, got {type(value).__name__}")
    return value


def queues(key: str, value: Any) -> frozenset[str]:
    """Return the names of declared queues."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{key} must be a dict of queue name to options (may be {{}}), got {type(value).__name__}")
    for name, options in value.items():
        check_name(name, name=f"a name in {key}")
        if not isinstance(options, Mapping):
            raise ValueError(f"{key}[{name!r}] must be a dict of options, got {type(options).__name__}")
        for option in options:
            raise ValueError(f"{key}[{name!r}] has the unknown option {option!r}; this version has none")
    return frozenset(value)


def retry(key: str, value: Any) -> RetryPolicy:
    """Return a retry policy."""
    if not isinstance(value, RetryPolicy):
        raise ValueError(f"{key} must be a django_delayq.RetryPolicy, got {type(value).__name__}")
    return value


def permission(key: str, value: Any) -> str:
    """Return the name of a permission, or the path of a function that is one."""
    if not isinstance(value, str) or not re.fullmatch(r"[^\s.]+(\.[^\s.]+)+", value):
        raise ValueError(
            f"{key} must be 'app_label.codename' or a dotted path to f(request) -> bool, got {value!r:.80}"
        )
    return value


def pattern(key: str, value: Any) -> re.Pattern[str]:
    """Return a regular expression that heeds no case."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"{key} must be a regular expression as text, got {value!r:.80}")
    try:
        return re.compile(value, re.IGNORECASE)
    except re.error as error:
        raise ValueError(f"{key} is no regular expression ({error}): {value!r:.80}") from error
