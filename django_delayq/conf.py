"""Config: the DELAYQ setting as one frozen value. Only this file reads settings.

Settings accept seconds or timedelta; inside, durations are integer microseconds. Unknown keys are errors that name the
nearest known one. Built lazily, dropped when a setting changes.
"""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import time_ns
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from django_delayq.clock import SECOND_US, duration_us, moment_us
from django_delayq.exceptions import DelayQError, DelayValueError, UnknownQueue
from django_delayq.redis_config import RedisConfig, SettingError
from django_delayq.retry import RetryPolicy

HOUR_US, DAY_US = 3_600 * SECOND_US, 86_400 * SECOND_US
#: Longest queue name, in bytes of UTF-8.
MAX_NAME = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskConfig:
    """What the enqueueing side needs."""

    task_modules: tuple[str, ...] = ()
    on_commit: bool = True
    retry: RetryPolicy = RetryPolicy()
    #: Declared queue names; empty: any name.
    queues: frozenset[str] = frozenset()
    max_delay_us: int = 3_650 * DAY_US
    #: Bytes of JSON.
    max_payload: int = 256 * 1024

    def check_queue(self, queue: Any) -> str:
        """Return the queue's name if it is a legal one. Raises ValueError, and `UnknownQueue` for an undeclared one."""
        name = check_name(queue, name="queue")
        if self.queues and name not in self.queues:
            raise UnknownQueue(
                f"queue {name!r} is not declared in DELAYQ['QUEUES']{nearest(name, self.queues)}; "
                f"declare it or use one that is"
            )
        return name

    def check_time(self, *, delay: Any = None, at: Any = None) -> tuple[int | None, int | None]:
        """Return (delay in µs, due in µs since the epoch) of what a caller asks for, at most one of them set.

        A delay of 0 is no delay. Raises `InvalidDelay`, `InvalidMoment`; TypeError where both are given.
        """
        if delay is not None and at is not None:
            raise TypeError("give either a delay or a moment (at, run_after), not both")
        limit_us = self.max_delay_us
        if at is not None:
            due_us = moment_us(at)
            if due_us - time_ns() // 1_000 > limit_us:
                raise DelayValueError(f"at is more than MAX_DELAY ({_days(limit_us)}) ahead; use an earlier moment")
            return None, due_us
        if delay is None:
            return None, None
        delay_us = duration_us(delay)
        if delay_us > limit_us:
            raise DelayValueError(f"delay is longer than MAX_DELAY ({_days(limit_us)}); use a shorter one")
        return delay_us or None, None


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatcherConfig:
    """What promotion and reclaim need."""

    lease_us: int = 30 * SECOND_US
    #: Head start of due jobs over ordinary ones of their priority.
    due_first_us: int = HOUR_US
    dead_max_age_us: int = 30 * DAY_US
    dead_max_count: int = 100_000

    @property
    def sweep_us(self) -> int:
        """Longest sleep: losing a wake-up costs this much, and recovery stays prompt for short leases."""
        return min(5 * SECOND_US, self.lease_us // 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """What a worker needs; the command line may replace parts of it."""

    concurrency: int = 8
    grace_us: int = 25 * SECOND_US
    lease_us: int = 30 * SECOND_US
    #: Queues to serve, in this order; empty: all, best rank first.
    queues: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The whole of DELAYQ."""

    redis: RedisConfig
    prefix: str = "delayq"
    shards: int = 1
    #: Seconds a producer's call may take in all.
    enqueue_timeout: float = 5.0
    tasks: TaskConfig = field(default_factory=TaskConfig)
    dispatcher: DispatcherConfig = field(default_factory=DispatcherConfig)
    worker: WorkerConfig = field(default_factory=WorkerConfig)


def check_name(value: Any, *, name: str) -> str:
    """Return a queue's name or a key if it is text of 1 to 200 bytes. Raises ValueError naming the argument."""
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a string, got {type(value).__name__}")
    size = len(value.encode("utf-8", "surrogatepass"))
    if not 1 <= size <= MAX_NAME:
        raise ValueError(f"{name} must be 1 to {MAX_NAME} bytes of text, got {size}")
    return value


def _days(us: int) -> str:
    return f"{us / DAY_US:g} days"


def nearest(word: str, known: Any) -> str:
    """Return ", did you mean …?" for a misspelt word, or nothing."""
    close = difflib.get_close_matches(word, [str(name) for name in known], n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _span(*, minimum_us: int = 0) -> Callable[[str, Any], int]:
    def read(key: str, value: Any) -> int:
        us = duration_us(value, name=key)
        if us < minimum_us:
            raise ValueError(f"{key} must be at least {minimum_us / SECOND_US:g} s, got {us / SECOND_US:g} s")
        return us

    return read


def _number(minimum: int, maximum: int) -> Callable[[str, Any], int]:
    def read(key: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"{key} must be a whole number, got {type(value).__name__}")
        if not minimum <= value <= maximum:
            raise ValueError(f"{key} must be {minimum:,} to {maximum:,}, got {value:,}")
        return value

    return read


def _prefix(key: str, value: Any) -> str:
    check_name(value, name=key)
    if set(value) & set("{}*?[]\\ \r\n") or not value.isprintable():
        raise ValueError(f"{key} must be printable text without braces, wildcards or spaces, got {value!r}")
    return str(value)


def _modules(key: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not all(isinstance(part, str) for part in value):
        raise ValueError(f"{key} must be a list of dotted module paths, got {value!r:.80}")
    return tuple(value)


def _truth(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{key} must be True or False, got {type(value).__name__}")
    return value


def _queues(key: str, value: Any) -> frozenset[str]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{key} must be a dict of queue name to options (may be {{}}), got {type(value).__name__}")
    for name, options in value.items():
        check_name(name, name=f"a name in {key}")
        if not isinstance(options, Mapping):
            raise ValueError(f"{key}[{name!r}] must be a dict of options, got {type(options).__name__}")
        for option in options:
            raise ValueError(f"{key}[{name!r}] has the unknown option {option!r}; this version has none")
    return frozenset(value)


def _retry(key: str, value: Any) -> RetryPolicy:
    if not isinstance(value, RetryPolicy):
        raise ValueError(f"{key} must be a django_delayq.RetryPolicy, got {type(value).__name__}")
    return value


#: DELAYQ key -> (part of Config, field, reader). The defaults are those of the fields.
_KEYS: dict[str, tuple[str, str, Callable[[str, Any], Any]]] = {
    "REDIS": ("", "redis", lambda key, value: RedisConfig.read(value)),
    "PREFIX": ("", "prefix", _prefix),
    "SHARDS": ("", "shards", _number(1, 1000)),
    "ENQUEUE_TIMEOUT": (
        "",
        "enqueue_timeout",
        lambda key, value: _span(minimum_us=10_000)(key, value) / SECOND_US,
    ),
    "QUEUES": ("tasks", "queues", _queues),
    "TASK_MODULES": ("tasks", "task_modules", _modules),
    "ON_COMMIT": ("tasks", "on_commit", _truth),
    "RETRY": ("tasks", "retry", _retry),
    "MAX_DELAY": ("tasks", "max_delay_us", _span(minimum_us=SECOND_US)),
    "MAX_PAYLOAD": ("tasks", "max_payload", _number(1_024, 8 * 1024 * 1024)),
    "LEASE": ("worker dispatcher", "lease_us", _span(minimum_us=SECOND_US)),
    "GRACE": ("worker", "grace_us", _span()),
    "CONCURRENCY": ("worker", "concurrency", _number(1, 10_000)),
    "DUE_FIRST": ("dispatcher", "due_first_us", _span()),
    "DEAD_MAX_AGE": ("dispatcher", "dead_max_age_us", _span(minimum_us=SECOND_US)),
    "DEAD_MAX_COUNT": ("dispatcher", "dead_max_count", _number(0, 100_000_000)),
}
_PARTS = {"tasks": TaskConfig, "dispatcher": DispatcherConfig, "worker": WorkerConfig}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with DELAYQ: `id` is that of the system check."""

    id: str
    message: str
    hint: str


def read_config(value: Any) -> tuple[Config | None, list[Problem]]:
    """Read a DELAYQ value; never connects. Returns no Config where there is a problem."""
    if value is None:
        return None, [Problem("delayq.E001", "The DELAYQ setting is missing.", "Set DELAYQ = {'REDIS': 'redis://…'}.")]
    if not isinstance(value, Mapping):
        kind = type(value).__name__
        return None, [
            Problem("delayq.E002", f"DELAYQ must be a dict, got {kind}.", "Set DELAYQ = {'REDIS': 'redis://…'}.")
        ]
    problems: list[Problem] = []
    if "REDIS" not in value:
        hint = "Give a URL, a CACHES alias of django-redis, keyword parameters, or a callable that returns one."
        problems.append(Problem("delayq.E003", "DELAYQ['REDIS'] is missing.", hint))
    values: dict[str, dict[str, Any]] = {"": {}, **{part: {} for part in _PARTS}}
    for key, entry in value.items():
        if key not in _KEYS:
            message = f"DELAYQ has the unknown key {key!r:.80}{nearest(str(key), _KEYS)}."
            problems.append(Problem("delayq.E004", message, f"Known keys: {', '.join(_KEYS)}."))
            continue
        parts, name, read = _KEYS[key]
        try:
            for part in parts.split(" "):
                values[part][name] = read(f"DELAYQ[{key!r}]", entry)
        except SettingError as error:
            problems.append(Problem("delayq.E005", str(error), error.hint))
        except (DelayQError, ValueError, TypeError) as error:
            problems.append(Problem("delayq.E006", f"{error}.", "See the settings table in the README."))
    if problems:
        return None, problems
    parts_made = {name: part(**values[name]) for name, part in _PARTS.items()}
    return Config(**values[""], **parts_made), []


def given() -> Any:
    """Return the DELAYQ setting as it stands, or None."""
    return getattr(settings, "DELAYQ", None)


_cached: Config | None = None


def get_config() -> Config:
    """Return the Config in force. Raises ImproperlyConfigured, which names the first problem and its cure."""
    global _cached
    if _cached is None:
        config, problems = read_config(given())
        if config is None:
            raise ImproperlyConfigured(f"{problems[0].message} {problems[0].hint}")
        _cached = config
    return _cached


#: Called when the configuration was dropped, so that what was built from it is dropped too.
on_config_dropped: list[Callable[[], None]] = []


def drop_config() -> None:
    """Forget the Config, so that the next use reads settings again."""
    global _cached
    _cached = None
    for forget in on_config_dropped:
        forget()


def _setting_changed(*, setting: str, **_: Any) -> None:
    if setting in ("DELAYQ", "CACHES"):
        drop_config()


setting_changed.connect(_setting_changed, dispatch_uid="django_delayq.conf")
