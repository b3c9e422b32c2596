"""Exception classes: the classes that the rules of a retry policy name by their dotted paths.

A job stores paths and a dispatcher compares texts. So a path is judged once, in a process of the project: the class
must exist, and an alias of it (`requests.Timeout`) becomes the path that its exceptions have.
"""

from dataclasses import replace
from importlib import import_module
from typing import Any

from django.core.exceptions import AppRegistryNotReady

from django_delayq.conf.spelling import did_you_mean
from django_delayq.job.retry import ClassPath, RetryPolicy, class_path

#: Path as a project wrote it -> the path of its class.
_known: dict[str, ClassPath] = {}


def resolve(policy: RetryPolicy, *, name: str = "retry") -> RetryPolicy:
    """Return the policy with the own path of each class. Imports the modules that its paths name.

    A path whose module cannot be imported yet stays as it is: the module may be the one that is being imported. Raises
    ValueError, which begins with `name`, for a path that names no exception class.
    """
    changes: dict[str, Any] = {}
    for rule in ("retry_on", "dead_on"):
        paths: Any = getattr(policy, rule)
        if not all(type(path) is ClassPath for path in paths):
            changes[rule] = tuple(_resolve(path, label=f"{rule} of {name}") for path in paths)
    return replace(policy, **changes) if changes else policy


def _resolve(path: str, *, label: str) -> str:
    if type(path) is ClassPath or "<locals>" in path:
        return path
    if path in _known:
        return _known[path]
    module, names = _import(path, label=label)
    if module is None or getattr(module.__spec__, "_initializing", False):
        return path
    found = module
    for each in names:
        if not hasattr(found, each):
            raise ValueError(
                f"{label} has {path!r:.200}, but {module.__name__} has no {each!r:.80}"
                f"{did_you_mean(each, vars(found))}; pass the class, or correct the path"
            )
        found = getattr(found, each)
    if not isinstance(found, type) or not issubclass(found, BaseException):
        raise ValueError(f"{label} has {path!r:.200}, which is no exception class; name one")
    return _known.setdefault(path, ClassPath(class_path(found)))


def _import(path: str, *, label: str) -> tuple[Any, list[str]]:
    """Return the module of a path and the names in it, or (None, []) if it cannot be imported yet."""
    parts = path.split(".")
    for end in range(len(parts) - 1, 0, -1):
        name = ".".join(parts[:end])
        try:
            return import_module(name), parts[end:]
        except ModuleNotFoundError as error:
            # Of the module itself or a package of it: the class may be in another class.
            if not f"{name}.".startswith(f"{error.name}."):
                return None, []
        except (ImportError, AppRegistryNotReady):
            return None, []
    raise ValueError(
        f"{label} has {path!r:.200}, but there is no module {parts[0]!r:.80} here; "
        f"correct the path, or install the package"
    )
