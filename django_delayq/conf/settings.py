"""Settings: DELAYQ read into one Config. Only this file reads settings.

Settings accept seconds or timedelta. Unknown keys are errors that name the nearest known one. Built lazily, dropped
when a setting changes. An alias of TASKS that is ours may have a Config of its own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from django_delayq import runtime
from django_delayq.clock import SECOND_US
from django_delayq.conf import task_backends, validators
from django_delayq.conf.config import (
    DAY_US,
    AdminConfig,
    Config,
    DispatcherConfig,
    TaskConfig,
    WorkerConfig,
    nearest,
)
from django_delayq.conf.redis_settings import RedisConfig, SettingError
from django_delayq.exceptions import DelayQError

#: DELAYQ["ADMIN"] key -> reader; the fields are the keys in lower case.
_ADMIN_KEYS: dict[str, Callable[[str, Any], Any]] = {
    "VIEW_PERMISSION": validators.permission,
    "MANAGE_PERMISSION": validators.permission,
    "PAYLOAD_PERMISSION": validators.permission,
    "READ_ONLY": validators.boolean,
    "AUTOREGISTER": validators.boolean,
    "CREATE_PERMISSIONS": validators.boolean,
    "REDACT": validators.pattern,
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
    "REDIS": ("", "redis", lambda key, value: RedisConfig.read(value, setting=key)),
    "PREFIX": ("", "prefix", validators.prefix),
    "SHARDS": ("", "shards", validators.integer(1, 1000)),
    "ENQUEUE_TIMEOUT": ("", "enqueue_timeout", validators.timeout),
    "SIGN": ("", "sign", validators.boolean),
    "ADMIN": ("", "admin", _admin),
    "QUEUES": ("tasks", "queues", validators.queues),
    "TASK_MODULES": ("tasks", "task_modules", validators.modules),
    "ON_COMMIT": ("tasks", "on_commit", validators.boolean),
    "RETRY": ("tasks", "retry", validators.retry),
    "MAX_DELAY": ("tasks", "max_delay_us", validators.duration(minimum_us=SECOND_US)),
    "RESULT_TTL": ("tasks", "result_ttl_us", validators.duration(minimum_us=SECOND_US)),
    "MAX_PAYLOAD": ("tasks", "max_payload", validators.integer(1_024, 8 * 1024 * 1024)),
    "LEASE": ("worker dispatcher", "lease_us", validators.duration(minimum_us=SECOND_US, maximum_us=DAY_US)),
    "GRACE": ("worker", "grace_us", validators.duration(maximum_us=DAY_US)),
    "CLAIM_BEHIND_POP": ("worker", "claim_behind_pop", validators.boolean),
    "CONCURRENCY": ("worker", "concurrency", validators.integer(1, 10_000)),
    "DUE_FIRST": ("dispatcher", "due_first_us", validators.duration(maximum_us=365 * DAY_US)),
    "DEAD_MAX_AGE": ("dispatcher", "dead_max_age_us", validators.duration(minimum_us=SECOND_US)),
    "DEAD_MAX_COUNT": ("dispatcher", "dead_max_count", validators.integer(0, 100_000_000)),
    "DEAD_MAX_BYTES": ("dispatcher", "dead_max_bytes", validators.integer(0, 2**50)),
}
_PARTS = {"tasks": TaskConfig, "dispatcher": DispatcherConfig, "worker": WorkerConfig}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with DELAYQ: `id` is that of the system check."""

    id: str
    message: str
    hint: str


def read_config(
    value: Any, *, own: Mapping[str, Any] | None = None, of: str = ""
) -> tuple[Config | None, list[Problem]]:
    """Read a DELAYQ value; never connects. Returns no Config where there is a problem.

    Of these keys those in `own` stand in `of`, for people, the others in DELAYQ.
    """
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
        where = of if own and key in own else "DELAYQ"
        if key not in _KEYS:
            message = f"{where} has the unknown key {key!r:.80}{nearest(str(key), _KEYS)}."
            problems.append(Problem("delayq.E004", message, f"Known keys: {', '.join(_KEYS)}."))
            continue
        parts, name, read = _KEYS[key]
        try:
            for part in parts.split(" "):
                values[part][name] = read(f"{where}[{key!r}]", entry)
        except SettingError as error:
            problems.append(Problem("delayq.E005", str(error), error.hint))
        except (DelayQError, ValueError, TypeError) as error:
            problems.append(Problem("delayq.E006", f"{error}.", "See the settings table in the README."))
    if problems:
        return None, problems
    parts_made = {name: part(**values[name]) for name, part in _PARTS.items()}
    return Config(**values[""], **parts_made), []


def raw_setting() -> Any:
    """Return the DELAYQ setting as it stands, or what an alias of TASKS says in its place, or None."""
    value, overrides = getattr(settings, "DELAYQ", None), runtime.current().settings
    if value is None:
        value = task_backends.fallback_settings(backends()) or ({} if overrides else None)
    return {**value, **overrides} if overrides and isinstance(value, Mapping) else value


def is_configured() -> bool:
    """Return whether there is a DELAYQ setting, so that nothing stands in for it."""
    return getattr(settings, "DELAYQ", None) is not None


def backends() -> dict[str, task_backends.Given]:
    """Return the OPTIONS of each alias in TASKS that is ours."""
    return task_backends.our_backends(getattr(settings, "TASKS", None))


def uses_time_zones() -> bool:
    """Return USE_TZ: whether datetimes of this project are aware."""
    return bool(settings.USE_TZ)


def sharing_alias() -> str | None:
    """Return the alias in TASKS whose jobs stand in DELAYQ's own store: `default`, or the only one of ours."""
    global _sharing
    if _sharing is _UNKNOWN:
        _sharing = task_backends.shared_alias(backends())
    return _sharing


def separate_aliases() -> list[str]:
    """Return the aliases in TASKS that are ours and have a store apart from DELAYQ's."""
    return [alias for alias in backends() if alias != sharing_alias()]


def read_alias(alias: str) -> tuple[Config | None, list[Problem]]:
    """Do as `read_config` for an alias in TASKS that is ours."""
    delayq, overrides = getattr(settings, "DELAYQ", None), runtime.current().settings
    value = task_backends.alias_settings(alias, backends(), delayq, forced=overrides)
    return read_config(value, own=backends()[alias], of=f"TASKS[{alias!r}]['OPTIONS']")


_UNKNOWN: Any = object()
_sharing: str | None = _UNKNOWN
_cached: dict[str | None, Config] = {}


def get_config(backend: str | None = None) -> Config:
    """Return the Config in force, or that of an alias in TASKS that is ours.

    Raises ImproperlyConfigured, which names the first problem and its cure.
    """
    config = _cached.get(backend)
    if config is None:
        if backend is not None and backend not in backends():
            known = ", ".join(map(repr, backends())) or "none is"
            raise ImproperlyConfigured(f"TASKS has no alias {backend!r} with a backend of django_delayq: {known}.")
        config, problems = read_config(raw_setting()) if backend is None else read_alias(backend)
        if config is None:
            raise ImproperlyConfigured(f"{problems[0].message} {problems[0].hint}")
        _cached[backend] = config
    return config


#: Called when the configuration was dropped, so that what was built from it is dropped too.
on_config_dropped: list[Callable[[], None]] = []


def drop_config() -> None:
    """Forget the Config, so that the next use reads settings again."""
    global _sharing
    _cached.clear()
    _sharing = _UNKNOWN
    for forget in on_config_dropped:
        forget()


def _setting_changed(*, setting: str, **_: Any) -> None:
    # Keys are derived from the secrets once.
    if setting in ("DELAYQ", "TASKS", "CACHES", "SECRET_KEY", "SECRET_KEY_FALLBACKS"):
        drop_config()


setting_changed.connect(_setting_changed, dispatch_uid="django_delayq.conf.settings")
