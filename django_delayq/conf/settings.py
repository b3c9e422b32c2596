"""Settings: DELAYQ and TASKS read into one Config for each store. Only this module and redis_settings.py read settings.

Read at first use, dropped when a setting changes. The alias `default` of TASKS, or the only alias with our backend,
shares the store of `@delayed_task`. Every other alias has a store of its own: its OPTIONS may hold the keys of DELAYQ,
missing keys are those of DELAYQ, and its prefix is `<PREFIX>-<alias>`.
"""

from collections.abc import Callable, Mapping
from dataclasses import Field
from functools import cache
from typing import Any
from urllib.parse import quote

from django.conf import settings
from django.core.checks import Error
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.crypto import salted_hmac
from django.utils.module_loading import import_string

from django_delayq import runtime
from django_delayq.conf.config import Config, DispatcherConfig, TaskConfig, WorkerConfig
from django_delayq.conf.redis_settings import SettingError
from django_delayq.conf.spelling import did_you_mean
from django_delayq.conf.validators import settings_of
from django_delayq.exceptions import see
from django_delayq.job.job import DJANGO_TASK

Given = Mapping[str, Any]
_BACKEND = "django_delayq.backend.DelayQBackend"
#: Keys of OPTIONS that are not keys of DELAYQ: they apply to the tasks of the alias, not to its store.
EXTRA_KEYS = ("TASKS", "ON_COMMIT")
#: Keys of DELAYQ that an alias may set even if it shares the store of DELAYQ. They apply to its own tasks only.
OWN_KEYS = ("RETRY", "RESULT_TTL", "MAX_PAYLOAD")
#: Default for Django's tasks: bytes of JSON of the arguments, and of the returned value.
MAX_PAYLOAD = 8 * 1024 * 1024
#: Keys of other task queues for what is an option of each task here.
_TIME_LIMIT_KEYS = ("TIMEOUT", "HARD_TIMEOUT", "SOFT_TIMEOUT", "TIME_LIMIT", "SOFT_TIME_LIMIT", "TASK_TIME_LIMIT")
#: Secrets of Django from which keys are derived.
_SECRETS = ("SECRET_KEY", "SECRET_KEY_FALLBACKS")
_PROJECT_SALT = "django_delayq.conf.settings.project_keys"
_TIME_LIMITS = ": time limits belong to tasks, as @delayed_task(timeout=…, hard_timeout=…)"
_PARTS = {"": Config, "tasks": TaskConfig, "dispatcher": DispatcherConfig, "worker": WorkerConfig}
_SEE = see("troubleshooting#a-setting-is-wrong")
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
        hint = f"Set DELAYQ = {{'REDIS': 'redis://localhost:6379/0'}}. {_SEE}"
        if value is None:
            return None, [Error("The DELAYQ setting is missing.", hint, id="delayq.E001")]
        return None, [Error(f"DELAYQ must be a dict, got {type(value).__name__}.", hint, id="delayq.E002")]
    problems: list[Error] = []
    if "REDIS" not in value:
        hint = f"Give a URL, a CACHES alias of django-redis, keyword parameters, or a callable that returns one. {_SEE}"
        problems.append(Error("DELAYQ['REDIS'] is missing.", hint, id="delayq.E003"))
    values: dict[str, dict[str, Any]] = {part: {} for part in _PARTS}
    for key, entry in value.items():
        place = of if own and key in own else "DELAYQ"
        if key not in SETTINGS:
            cure = _TIME_LIMITS if key in _TIME_LIMIT_KEYS else did_you_mean(key, SETTINGS)
            message = f"{place} has the unknown key {key!r:.80}{cure}."
            problems.append(Error(message, f"Known keys: {', '.join(SETTINGS)}. {_SEE}", id="delayq.E004"))
            continue
        try:
            for part, field in SETTINGS[key].items():
                values[part][field.name] = field.metadata["validate"](f"{place}[{key!r}]", entry)
        except SettingError as error:
            problems.append(Error(str(error), error.hint, id="delayq.E005"))
        except ValueError as error:
            problems.append(Error(f"{error}.", see("reference/settings"), id="delayq.E006"))
    if problems:
        return None, problems
    parts = {part: kind(**values[part]) for part, kind in _PARTS.items() if part}
    return Config(**values[""], **parts), []


def raw_setting() -> Any:
    """Return the DELAYQ setting as it is, else the OPTIONS of an alias of TASKS that replace it, else None."""
    value, overrides = getattr(settings, "DELAYQ", None), runtime.current().settings
    if value is None:
        value = _fallback(backends()) or ({} if overrides else None)
    return {**value, **overrides} if overrides and isinstance(value, Mapping) else value


def is_configured() -> bool:
    """Return whether there is a DELAYQ setting. Without one, OPTIONS of an alias of TASKS may replace it."""
    return getattr(settings, "DELAYQ", None) is not None


def backends() -> dict[str, Given]:
    """Return the OPTIONS of each alias in TASKS whose backend is `DelayQBackend` or a subclass."""
    found: dict[str, Given] = {}
    tasks = getattr(settings, "TASKS", None)
    for alias, entry in tasks.items() if isinstance(tasks, Mapping) else ():
        if isinstance(entry, Mapping) and _is_ours(entry.get("BACKEND")):
            options = entry.get("OPTIONS", {})
            # The backend's own check reports OPTIONS that are no dict.
            found[alias] = options if isinstance(options, Mapping) else {}
    return found


def _is_ours(path: Any) -> bool:
    if not isinstance(path, str):
        return False
    if path == _BACKEND:
        return True
    try:
        made = import_string(path)
    except ImportError:
        # Django reports it.
        return False
    return getattr(made, "is_delayq_backend", False) is True


def is_debug() -> bool:
    """Return DEBUG."""
    return bool(settings.DEBUG)


def default_time_zone() -> str:
    """Return the name of the time zone of the project."""
    zone: str = settings.TIME_ZONE
    return zone


def project_name() -> str:
    """Return ROOT_URLCONF, by which a person recognizes a project."""
    return str(getattr(settings, "ROOT_URLCONF", None) or "")


def project_keys() -> list[str]:
    """Return 32 bits of a digest of SECRET_KEY and of each fallback. Processes of one project have one in common."""
    try:
        secrets = [settings.SECRET_KEY, *(settings.SECRET_KEY_FALLBACKS or ())]
    except ImproperlyConfigured:
        # SECRET_KEY is empty.
        return []
    return [salted_hmac(_PROJECT_SALT, b"", secret=each, algorithm="sha256").hexdigest()[:8] for each in secrets]


def uses_time_zones() -> bool:
    """Return USE_TZ: whether the project's datetimes are aware."""
    return bool(settings.USE_TZ)


@cache
def sharing_alias() -> str | None:
    """Return the alias in TASKS that shares the store of DELAYQ, or None."""
    return _sharing(backends())


def _sharing(ours: Mapping[str, Given]) -> str | None:
    if "default" in ours:
        return "default"
    return next(iter(ours)) if len(ours) == 1 else None


def _fallback(ours: Mapping[str, Given]) -> dict[str, Any] | None:
    """Return the keys of the sharing alias that replace a missing DELAYQ, or None if it has none."""
    alias = _sharing(ours)
    return _delayq_keys(ours[alias]) or None if alias is not None else None


def _delayq_keys(options: Given) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key not in EXTRA_KEYS}


def place_of(key: str, backend: str | None) -> str:
    """Return where a setting of DELAYQ, or of an alias in TASKS, is written, as errors name it."""
    alias = sharing_alias() if backend is None and not is_configured() else backend
    return f"TASKS[{alias!r}]['OPTIONS'][{key!r}]" if key in backends().get(alias or "", {}) else f"DELAYQ[{key!r}]"


def separate_aliases() -> list[str]:
    """Return the aliases in TASKS that have our backend and a store of their own."""
    return [alias for alias in backends() if alias != sharing_alias()]


def read_alias(alias: str) -> tuple[Config | None, list[Error]]:
    """Read the settings of an alias in TASKS that has our backend, as `read_config` does.

    Defaults for its tasks are those of Django's contract. What a test overrides stands above all of them.
    """
    ours, delayq, overrides = backends(), getattr(settings, "DELAYQ", None), runtime.current().settings
    own = ours[alias]
    given = {**(delayq if isinstance(delayq, Mapping) else _fallback(ours) or {}), **overrides}
    given |= {"RETRY": DJANGO_TASK.retry, "MAX_PAYLOAD": MAX_PAYLOAD}
    if alias == _sharing(ours):
        given |= {key: own[key] for key in OWN_KEYS if key in own}
    else:
        # These are schedules of the store of DELAYQ.
        given.pop("RECURRING", None)
        prefix = {"PREFIX": f"{given.get('PREFIX', 'delayq')}-{quote(alias, safe='')}"}
        given |= {**prefix, **_delayq_keys(own), **overrides, **(prefix if "PREFIX" in overrides else {})}
    return read_config(given, own=own, of=f"TASKS[{alias!r}]['OPTIONS']")


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
    if setting in ("DELAYQ", "TASKS", "CACHES", "DJANGO_REDIS_CONNECTION_FACTORY", *_SECRETS):
        drop_config()


setting_changed.connect(_setting_changed, dispatch_uid="django_delayq.conf.settings")
