"""Task backends: the entries of TASKS that have our backend, and the store of each. Reads no settings itself.

`default`, or the only alias of ours, shares the store of `@delayed_task`. Every other alias has a store of its own: its
OPTIONS may hold the keys of DELAYQ, missing keys are those of DELAYQ, and its prefix is `<PREFIX>-<alias>`.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from django.utils.module_loading import import_string

from django_delayq.job.job import DJANGO_TASK

Given = Mapping[str, Any]
_BACKEND = "django_delayq.backend.DelayQBackend"
#: Keys of OPTIONS that are not keys of DELAYQ: they apply to the tasks of the alias, not to its store.
EXTRA_KEYS = ("TASKS", "ON_COMMIT")
#: Keys of DELAYQ that an alias may set even if it shares the store of DELAYQ. They apply to its own tasks only.
OWN_KEYS = ("RETRY", "RESULT_TTL", "MAX_PAYLOAD")
#: Default for Django's tasks: bytes of JSON of the arguments, and of the returned value.
MAX_PAYLOAD = 8 * 1024 * 1024


def our_backends(tasks: Any) -> dict[str, Given]:
    """Return the OPTIONS of each alias whose backend is ours or a subclass of ours."""
    found = {}
    for alias, entry in tasks.items() if isinstance(tasks, Mapping) else ():
        if isinstance(entry, Mapping) and _is_ours(entry.get("BACKEND")):
            options = entry.get("OPTIONS", {})
            # The backend's own check reports OPTIONS that are no dict.
            found[alias] = options if isinstance(options, Mapping) else {}
    return found


def shared_alias(backends: Mapping[str, Given]) -> str | None:
    """Return the alias that shares the store of DELAYQ, or None."""
    if "default" in backends:
        return "default"
    return next(iter(backends)) if len(backends) == 1 else None


def fallback_settings(backends: Mapping[str, Given]) -> dict[str, Any] | None:
    """Return the keys of the sharing alias that replace a missing DELAYQ, or None if it has none."""
    alias = shared_alias(backends)
    return _delayq_keys(backends[alias]) or None if alias is not None else None


def alias_settings(alias: str, backends: Mapping[str, Given], delayq: Any, *, forced: Given) -> dict[str, Any]:
    """Return the keys of DELAYQ as they apply to an alias. Defaults for its tasks are those of Django's contract.

    `forced` overrides all of them, and DELAYQ too.
    """
    given = {**(delayq if isinstance(delayq, Mapping) else fallback_settings(backends) or {}), **forced}
    task_defaults = {"RETRY": DJANGO_TASK.retry, "MAX_PAYLOAD": MAX_PAYLOAD}
    if alias == shared_alias(backends):
        return {**given, **task_defaults, **{key: backends[alias][key] for key in OWN_KEYS if key in backends[alias]}}
    prefix = f"{given.get('PREFIX', 'delayq')}-{quote(alias, safe='')}"
    fixed = {**forced, "PREFIX": prefix} if "PREFIX" in forced else forced
    return {**given, **task_defaults, "PREFIX": prefix, **_delayq_keys(backends[alias]), **fixed}


def _delayq_keys(options: Given) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key not in EXTRA_KEYS}


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
