"""Aliases: which entries of TASKS are ours, and which store each has. Works on the settings it is given.

`default`, or the only one of ours, shares the store of `@delayed_task`; every other one has a store of its own: its
OPTIONS may hold the keys of DELAYQ, what they leave out is DELAYQ's, and the prefix is `<PREFIX>-<alias>`.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from django.utils.module_loading import import_string

from django_delayq.job.job import DJANGO_TASK

Given = Mapping[str, Any]
_BACKEND = "django_delayq.backend.DelayQBackend"
#: What OPTIONS say of the tasks of an alias, besides the keys of DELAYQ.
EXTRA_KEYS = ("TASKS", "ON_COMMIT")
#: Keys of DELAYQ that OPTIONS may have also where the alias shares DELAYQ's store: there they mean its tasks alone.
OWN_KEYS = ("RETRY", "RESULT_TTL", "MAX_PAYLOAD")
#: Bytes of JSON that arguments of Django's tasks may take, and what they return.
MAX_PAYLOAD = 8 * 1024 * 1024


def our_backends(tasks: Any) -> dict[str, Given]:
    """Return the OPTIONS of each alias whose backend is ours, or made from it."""
    entries = tasks.items() if isinstance(tasks, Mapping) else ()
    found = {
        alias: entry.get("OPTIONS", {})
        for alias, entry in entries
        if isinstance(entry, Mapping) and _is_ours(entry.get("BACKEND"))
    }
    # What is no dict the backend's own check tells.
    return {alias: options if isinstance(options, Mapping) else {} for alias, options in found.items()}


def shared_alias(backends: Mapping[str, Given]) -> str | None:
    """Return the alias that shares DELAYQ's store, or None."""
    if "default" in backends:
        return "default"
    return next(iter(backends)) if len(backends) == 1 else None


def fallback_settings(backends: Mapping[str, Given]) -> dict[str, Any] | None:
    """Return what the sharing alias says in place of a DELAYQ that there is not; None where that is nothing."""
    alias = shared_alias(backends)
    return _delayq_keys(backends[alias]) or None if alias is not None else None


def alias_settings(alias: str, backends: Mapping[str, Given], delayq: Any, *, forced: Given) -> dict[str, Any]:
    """Return the DELAYQ of an alias: of its store, and of its tasks, whose manners are those of Django's contract.

    What is forced stands above them, as above DELAYQ.
    """
    given = {**(delayq if isinstance(delayq, Mapping) else fallback_settings(backends) or {}), **forced}
    manners = {"RETRY": DJANGO_TASK.retry, "MAX_PAYLOAD": MAX_PAYLOAD}
    if alias == shared_alias(backends):
        return {**given, **manners, **{key: backends[alias][key] for key in OWN_KEYS if key in backends[alias]}}
    prefix = f"{given.get('PREFIX', 'delayq')}-{quote(alias, safe='')}"
    fixed = {**forced, "PREFIX": prefix} if "PREFIX" in forced else forced
    return {**given, **manners, "PREFIX": prefix, **_delayq_keys(backends[alias]), **fixed}


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
        # Django tells.
        return False
    return getattr(made, "is_delayq_backend", False) is True
