"""Registry: the tasks of this process by name. Decoration adds a task; a stored name only selects one.

Nothing is ever imported because of a name in Redis.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import autodiscover_modules

from django_delayq.conf.spelling import did_you_mean
from django_delayq.exceptions import UnknownTask, see

_tasks: dict[str, Any] = {}
#: Names that were registered after all apps were ready.
_late: set[str] = set()
_SEE = see("troubleshooting#a-task-is-unknown")
#: Called with a name that is not registered: they find tasks of other libraries in modules that are loaded.
finders: list[Callable[[str], Any | None]] = []


def register(task: Any) -> None:
    """Add a `Task` under its name and aliases. Raises ImproperlyConfigured if another function has one of the names."""
    for name in (task.name, *task.aliases):
        other = _tasks.get(name)
        # A module that is imported twice (a reload, a test) defines the same function again: same file, same line.
        if other is not None and _place(other.func) != _place(task.func):
            raise ImproperlyConfigured(
                f"Two tasks have the name {name!r}: {_place(other.func)} and {_place(task.func)}. "
                f"Rename one, or take the name out of its aliases."
            )
    for name in (task.name, *task.aliases):
        if apps.ready and name not in _tasks:
            _late.add(name)
        _tasks[name] = task


@contextmanager
def override(tasks: dict[str, Any] | None = None) -> Iterator[None]:
    """Replace the registered tasks until the block ends, by a copy if `tasks` is None. None is late then. For tests."""
    global _tasks, _late
    before, late_before = _tasks, _late
    _tasks, _late = dict(_tasks) if tasks is None else tasks, set()
    try:
        yield
    finally:
        _tasks, _late = before, late_before


def registered(name: str) -> Any | None:
    """Return the task that was registered under a name or alias, or None."""
    return _tasks.get(name)


def find(name: str) -> Any | None:
    """Return the task of a name or alias, or None; also looks for tasks of other libraries."""
    task = _tasks.get(name)
    if task is not None:
        return task
    return next(filter(None, (finder(name) for finder in finders)), None)


def get(name: str) -> Any:
    """Return the task of a name or alias. Raises `UnknownTask`, which suggests the nearest name."""
    task = _tasks.get(name) if isinstance(name, str) else None
    if task is None:
        raise UnknownTask(
            f"No task is registered as {name!r:.200}{did_you_mean(name, _tasks)}. Tasks live in tasks.py of an "
            f"installed app or in a module of DELAYQ['TASK_MODULES']. {_SEE}"
        )
    return task


def why_unknown(name: str) -> str:
    """Return why this process has no task of a stored name, and the cure, in one line that a log shows whole."""
    module = name.rpartition(".")[0]
    if module not in sys.modules and apps.get_containing_app_config(module) is None:
        cure = "no app in INSTALLED_APPS has its module: install the app, or give each project a PREFIX of its own"
    else:
        cure = "keep the function, name its old name in aliases=, or restart a worker with old code"
    return f"No task is registered as {name!r:.80} in this worker: {cure}. {_SEE}"


def names_of(name: str) -> tuple[str, ...]:
    """Return all names of the task of a name or alias, its own first; the given one alone if no task has it."""
    task = find(name)
    return (name,) if task is None else (task.name, *task.aliases)


def names() -> list[str]:
    """Return all registered names and aliases, sorted."""
    return sorted(_tasks)


def tasks() -> list[Any]:
    """Return all registered tasks, each once, sorted by name."""
    return [_tasks[name] for name in names() if _tasks[name].name == name]


def autodiscover(modules: tuple[str, ...]) -> None:
    """Import `tasks.py` of every installed app, and the given modules."""
    autodiscover_modules("tasks")
    for module in modules:
        import_module(module)


def late() -> list[str]:
    """Return the names registered after all apps were ready: other processes may not import their modules."""
    return sorted(_late & _tasks.keys())


def _place(func: Any) -> str:
    code = func.__code__
    return f"{func.__module__}.{func.__qualname__} ({code.co_filename}:{code.co_firstlineno})"
