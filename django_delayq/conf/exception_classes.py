"""Exception classes: the classes that the rules of a retry policy name by their dotted paths.

A job stores paths and a dispatcher compares texts. So a path is judged in a process of the project: the class must
exist, and an alias of it (`requests.Timeout`) becomes the path that its exceptions have.
"""

import sys
from dataclasses import replace
from importlib import import_module
from typing import Any

from django.core.exceptions import AppRegistryNotReady

from django_delayq.conf.spelling import did_you_mean
from django_delayq.job.retry import ClassPath, RetryPolicy, class_path

#: Path as a project wrote it -> the path of its class.
_known: dict[str, ClassPath] = {}
_RULES = ("retry_on", "dead_on")


def resolve(policy: RetryPolicy, *, name: str = "retry", is_final: bool = False) -> RetryPolicy:
    """Return the policy with the own path of each class. Imports the modules that its paths name.

    A path whose module cannot be imported yet stays as it is: the module may be the one that is being imported. With
    `is_final` a module that fails to be imported is an error. Raises ValueError, which begins with the rule and `name`,
    for a path that names no exception class.
    """
    changes: dict[str, Any] = {}
    for rule in _RULES:
        paths: Any = getattr(policy, rule)
        if not all(type(path) is ClassPath for path in paths):
            label = f"{rule} of {name}"
            changes[rule] = tuple(_resolve(path, label=label, is_final=is_final) for path in paths)
    return replace(policy, **changes) if changes else policy


def is_resolved(policy: RetryPolicy) -> bool:
    """Return whether every path of the policy is known to be that of an exception class."""
    paths: tuple[Any, ...] = (*policy.retry_on, *policy.dead_on)  # type: ignore[misc]
    return all(type(path) is ClassPath for path in paths)


def _resolve(path: str, *, label: str, is_final: bool) -> str:
    if type(path) is ClassPath:
        return path
    if path in _known:
        return _known[path]
    if "<locals>" in path:
        # Nothing but an exception of that class could judge it.
        return ClassPath(path)
    module, names = _import(path, label=label, is_final=is_final)
    if module is None:
        return path
    found = module
    for each in names:
        if not hasattr(found, each):
            if _is_initializing(module):
                return path
            raise ValueError(
                f"{label} has {path!r:.200}, but {module.__name__} has no {each!r:.80}"
                f"{did_you_mean(each, vars(found))}; pass the class, or correct the path"
            )
        found = getattr(found, each)
    if not isinstance(found, type) or not issubclass(found, BaseException):
        if _is_initializing(module):
            return path
        raise ValueError(f"{label} has {path!r:.200}, which is no exception class; name one")
    return _known.setdefault(path, ClassPath(class_path(found)))


def _import(path: str, *, label: str, is_final: bool) -> tuple[Any, list[str]]:
    """Return the module of a path and the names in it, or (None, []) if it cannot be imported yet."""
    parts = path.split(".")
    for end in range(len(parts) - 1, 0, -1):
        name = ".".join(parts[:end])
        try:
            return import_module(name), parts[end:]
        except AppRegistryNotReady:
            return None, []
        except ImportError as error:
            # Of the module itself or a package of it: the class may be in another class.
            if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
                continue
            # Two modules that import each other: the second one lacks nothing when the first one is complete.
            if not is_final or _is_initializing(sys.modules.get(error.name or "")):
                return None, []
            raise ValueError(
                f"{label} has {path!r:.200}, but {name} cannot be imported: {error}; mend that module, or correct the "
                f"path"
            ) from error
    raise ValueError(
        f"{label} has {path!r:.200}, but there is no module {parts[0]!r:.80} here; "
        f"correct the path, or install the package"
    )


def _is_initializing(module: Any) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))
