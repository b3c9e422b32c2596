"""Settings: DELAYQ read into one Config. Only this module and redis_settings.py read settings.

Read at first use, dropped when a setting changes. An alias of TASKS with our backend may have a Config of its own.
"""

from collections.abc import Callable, Mapping
from dataclasses import Field
from functools import cache
from typing import Any

from django.conf import settings
from django.core.checks import Error
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from django_delayq import runtime
from django_delayq.conf import task_backends
from django_delayq.conf.config import Config, DispatcherConfig, TaskConfig, WorkerConfig
from django_delayq.conf.redis_settings import SettingError
from django_delayq.conf.spelling import did_you_mean
from django_delayq.conf.validators import settings_of

_PARTS = {"": Config, "tasks": TaskConfig, "dispatcher": DispatcherConfig, "worker": WorkerConfig}
#: Key of DELAYQ -> the parts of Config that it fills, and their fields.
SETTINGS: dict[str, dict[str, Field[Any]]] = {}
for _part, _kind in _PARTS.items():
    for _key, _field in settings_of(_kind).items():
        SETTINGS.setdefault(_key, {})[_part] = _field


def read_config(value: Any, *, own: Mapping[str, Any] | None = None, of: str = "") -> tuple[Config | None, list[Error]]:
    """Read a DELAYQ value; never connects. Returns (Config, []), or None and the error of every mistake.

    Messages name `of` as the place of the keys in `own`, and DELAYQ as that of the others.
    """
    if not isinstance(value, Mapping):
        hint = "Set DELAYQ = {'REDIS': 'redis://…'}."
        if value is None:
            return None, [Error("The DELAYQ setting is missing.", hint, id="delayq.E001")]
        return None, [Error(f"DELAYQ must be a dict, got {type(value).__name__}.", hint, id="delayq.E002")]
    problems: list[Error] = []
    if "REDIS" not in value:
        hint = "Give a URL, a CACHES alias of django-redis, keyword parameters, or a callable that returns one."
        problems.append(Error("DELAYQ['REDIS'] is missing.", hint, id="delayq.E003"))
    values: dict[str, dict[str, Any]] = {part: {} for part in _PARTS}
    for key, entry in value.items():
        place = of if own and key in own else "DELAYQ"
        if key not in SETTINGS:
            message = f"{place} has the unknown key {key!r:.80}{did_you_mean(key, SETTINGS)}."
            problems.append(Error(message, f"Known keys: {', '.join(SETTINGS)}.", id="delayq.E004"))
            continue
        try:
            for part, field in SETTINGS[key].items():
                values[part][field.name] = field.metadata["validate"](f"{place}[{key!r}]", entry)
        except SettingError as error:
            problems.append(Error(str(error), error.hint, id="delayq.E005"))
        except ValueError as error:
            problems.append(Error(f"{error}.", "See docs/settings.md for the values of every key.", id="delayq.E006"))
    if problems:
        return None, problems
    parts = {part: kind(**values[part]) for part, kind in _PARTS.items() if part}
    return Config(**values[""], **parts), []


def raw_setting() -> Any:
    """Return the DELAYQ setting as it is, else the OPTIONS of an alias of TASKS that replace it, else None."""
    value, overrides = getattr(settings, "DELAYQ", None), runtime.current().settings
    if value is None:
        value = task_backends.fallback_settings(backends()) or ({} if overrides else None)
    return {**value, **overrides} if overrides and isinstance(value, Mapping) else value


def is_configured() -> bool:
    """Return whether there is a DELAYQ setting. Without one, OPTIONS of an alias of TASKS may replace it."""
    return getattr(settings, "DELAYQ", None) is not None


def backends() -> dict[str, task_backends.Given]:
    """Return the OPTIONS of each alias in TASKS that has our backend."""
    return task_backends.our_backends(getattr(settings, "TASKS", None))


def uses_time_zones() -> bool:
    """Return USE_TZ: whether the project's datetimes are aware."""
    return bool(settings.USE_TZ)


@cache
def sharing_alias() -> str | None:
    """Return the alias in TASKS that shares the store of DELAYQ, or None."""
    return task_backends.shared_alias(backends())


def separate_aliases() -> list[str]:
    """Return the aliases in TASKS that have our backend and a store of their own."""
    return [alias for alias in backends() if alias != sharing_alias()]


def read_alias(alias: str) -> tuple[Config | None, list[Error]]:
    """Read the settings of an alias in TASKS that has our backend, as `read_config` does."""
    delayq, overrides = getattr(settings, "DELAYQ", None), runtime.current().settings
    value = task_backends.alias_settings(alias, backends(), delayq, forced=overrides)
    return read_config(value, own=backends()[alias], of=f"TASKS[{alias!r}]['OPTIONS']")


@cache
def get_config(backend: str | None = None) -> Config:
    """Return the Config of DELAYQ, or of an alias in TASKS that has our backend.

    Raises ImproperlyConfigured, which names the first problem and its cure.
    """
    if backend is not None and backend not in backends():
        known = f"use one of {', '.join(map(repr, backends()))}" if backends() else "no alias has one"
        raise ImproperlyConfigured(f"TASKS has no alias {backend!r} with a backend of django_delayq: {known}.")
    config, problems = read_config(raw_setting()) if backend is None else read_alias(backend)
    if config is None:
        raise ImproperlyConfigured(f"{problems[0].msg} {problems[0].hint}")
    return config


#: Called when Config is dropped, so that what was built from it is dropped too.
on_config_dropped: list[Callable[[], None]] = []


def drop_config() -> None:
    """Drop every Config; the next use reads the settings again."""
    get_config.cache_clear()
    sharing_alias.cache_clear()
    for forget in on_config_dropped:
        forget()


def _setting_changed(*, setting: str, **_: Any) -> None:
    # Signing keys are derived from the secrets when a store is built.
    if setting in ("DELAYQ", "TASKS", "CACHES", "SECRET_KEY", "SECRET_KEY_FALLBACKS"):
        drop_config()


setting_changed.connect(_setting_changed, dispatch_uid="django_delayq.conf.settings")
