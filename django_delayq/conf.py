"""Settings: DELAYQ read into one Config. Only this file reads settings.

Settings accept seconds or timedelta. Unknown keys are errors that name the nearest known one. Built lazily, dropped
when a setting changes.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from django_delayq.clock import SECOND_US, duration_us
from django_delayq.config import (
    DAY_US,
    AdminConfig,
    Config,
    DispatcherConfig,
    TaskConfig,
    WorkerConfig,
    check_name,
    nearest,
)
from django_delayq.exceptions import DelayQError
from django_delayq.redis_config import RedisConfig, SettingError
from django_delayq.retry import RetryPolicy


def _span(*, minimum_us: int = 0, maximum_us: int = 3_650 * DAY_US) -> Callable[[str, Any], int]:
    def read(key: str, value: Any) -> int:
        us = duration_us(value, name=key)
        if us < minimum_us:
            raise ValueError(f"{key} must be at least {minimum_us / SECOND_US:g} s, got {us / SECOND_US:g} s")
        if us > maximum_us:
            raise ValueError(f"{key} must be at most {maximum_us / SECOND_US:g} s")
        return us

    return read


def _timeout(key: str, value: Any) -> float:
    return _span(minimum_us=10_000, maximum_us=DAY_US)(key, value) / SECOND_US


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
    if not isinstance(value, list | tuple) or not all(isinstance(part, str) for part in value):
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


def _permission(key: str, value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[^\s.]+(\.[^\s.]+)+", value):
        raise ValueError(
            f"{key} must be 'app_label.codename' or a dotted path to f(request) -> bool, got {value!r:.80}"
        )
    return value


def _pattern(key: str, value: Any) -> re.Pattern[str]:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{key} must be a regular expression as text, got {value!r:.80}")
    try:
        return re.compile(value, re.IGNORECASE)
    except re.error as error:
        raise ValueError(f"{key} is no regular expression ({error}): {value!r:.80}") from error


#: DELAYQ["ADMIN"] key -> reader; the fields are the keys in lower case.
_ADMIN_KEYS: dict[str, Callable[[str, Any], Any]] = {
    "VIEW_PERMISSION": _permission,
    "MANAGE_PERMISSION": _permission,
    "PAYLOAD_PERMISSION": _permission,
    "READ_ONLY": _truth,
    "AUTOREGISTER": _truth,
    "CREATE_PERMISSIONS": _truth,
    "REDACT": _pattern,
}


def _admin(key: str, value: Any) -> AdminConfig:
    if not isinstance(value, Mapping):
        raise ValueError(f"{key} must be a dict of {', '.join(_ADMIN_KEYS)}, got {type(value).__name__}")
    for name in value:
        if name not in _ADMIN_KEYS:
            raise ValueError(f"{key} has the unknown key {name!r:.80}{nearest(str(name), _ADMIN_KEYS)}")
    return AdminConfig(**{name.lower(): _ADMIN_KEYS[name](f"{key}[{name!r}]", each) for name, each in value.items()})


#: DELAYQ key -> (part of Config, field, reader). The defaults are those of the fields.
_KEYS: dict[str, tuple[str, str, Callable[[str, Any], Any]]] = {
    "REDIS": ("", "redis", lambda key, value: RedisConfig.read(value)),
    "PREFIX": ("", "prefix", _prefix),
    "SHARDS": ("", "shards", _number(1, 1000)),
    "ENQUEUE_TIMEOUT": ("", "enqueue_timeout", _timeout),
    "SIGN": ("", "sign", _truth),
    "ADMIN": ("", "admin", _admin),
    "QUEUES": ("tasks", "queues", _queues),
    "TASK_MODULES": ("tasks", "task_modules", _modules),
    "ON_COMMIT": ("tasks", "on_commit", _truth),
    "RETRY": ("tasks", "retry", _retry),
    "MAX_DELAY": ("tasks", "max_delay_us", _span(minimum_us=SECOND_US)),
    "MAX_PAYLOAD": ("tasks", "max_payload", _number(1_024, 8 * 1024 * 1024)),
    "LEASE": ("worker dispatcher", "lease_us", _span(minimum_us=SECOND_US, maximum_us=DAY_US)),
    "GRACE": ("worker", "grace_us", _span(maximum_us=DAY_US)),
    "CONCURRENCY": ("worker", "concurrency", _number(1, 10_000)),
    "DUE_FIRST": ("dispatcher", "due_first_us", _span(maximum_us=365 * DAY_US)),
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
    # Keys are derived from the secrets once.
    if setting in ("DELAYQ", "CACHES", "SECRET_KEY", "SECRET_KEY_FALLBACKS"):
        drop_config()


setting_changed.connect(_setting_changed, dispatch_uid="django_delayq.conf")
