"""Registry: name -> task. Tasks enter themselves at decoration; a stored name can only select one of them.

Nothing is ever imported because Redis says so.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import autodiscover_modules

from django_delayq.exceptions import UnknownTask
from django_delayq.spelling import did_you_mean


class RegisteredTask(Protocol):
    """What the registry needs to know of a task."""

    @property
    def name(self) -> str:
        """What stored jobs call it."""

    @property
    def func(self) -> Any:
        """The function."""

    @property
    def aliases(self) -> tuple[str, ...]:
        """Former names."""


_tasks: dict[str, Any] = {}
#: Names that came once all apps were ready.
_late: set[str] = set()
#: Asked for a name that nobody registered: finds tasks that other libraries made, in modules that are loaded.
finders: list[Callable[[str], Any | None]] = []


def register(task: RegisteredTask) -> None:
    """Enter a task under its name and aliases. Raises ImproperlyConfigured where another function has one of them."""
    for name in (task.name, *task.aliases):
        other = _tasks.get(name)
        # A module imported twice (a reload, a test) defines the same function again: same file, same line.
        if other is not None and _place(other.func) != _place(task.func):
            raise ImproperlyConfigured(
                f"Two tasks have the name {name!r}: {_place(other.func)} and {_place(task.func)}. "
                f"Rename one, or take the name out of its aliases."
            )
    for name in (task.name, *task.aliases):
        if apps.ready and name not in _tasks:
            _late.add(name)
        _tasks[name] = task


def registered(name: str) -> Any | None:
    """Return the task that entered itself under that name or alias, or None."""
    return _tasks.get(name)


def find(name: str) -> Any | None:
    """Return the task of that name or alias, or None."""
    task = _tasks.get(name)
    if task is not None:
        return task
    return next(filter(None, (finder(name) for finder in finders)), None)


def get(name: str) -> Any:
    """Return the task of that name or alias. Raises `UnknownTask`, which names the nearest one."""
    task = _tasks.get(name) if isinstance(name, str) else None
    if task is None:
        raise UnknownTask(
            f"No task is registered as {name!r:.200}{did_you_mean(name, _tasks)}. "
            f"Tasks live in tasks.py of an installed app or in a module of DELAYQ['TASK_MODULES']."
        )
    return task


def names() -> list[str]:
    """Return all registered names and aliases, sorted."""
    return sorted(_tasks)


def autodiscover(modules: tuple[str, ...]) -> None:
    """Import tasks.py of every installed app, and the named modules."""
    autodiscover_modules("tasks")
    for module in modules:
        import_module(module)


def late() -> list[str]:
    """Return the names that came once all apps were ready: not every process need import their modules."""
    return sorted(_late & _tasks.keys())


def _place(func: Any) -> str:
    code = func.__code__
    return f"{func.__module__}.{func.__qualname__} ({code.co_filename}:{code.co_firstlineno})"
