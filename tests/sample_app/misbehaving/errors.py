"""Errors that are raised: each kind of exception that is odd to handle."""

import asyncio
from collections.abc import Callable
from typing import Any

from django_delayq import DeadLetterNow, RetryLater
from django_delayq.exceptions import TaskTimeout
from tests.sample_app.misbehaving.kinds import ASYNC, PLAIN, raising, raising_async

# Exceptions


class _Meta(type):
    def __getattribute__(cls, name: str) -> Any:
        if name in ("__module__", "__qualname__", "__name__"):
            raise SystemExit(3)
        return super().__getattribute__(name)


class HostileClass(Exception, metaclass=_Meta):
    """A metaclass that raises SystemExit if a name of its class is read."""


class HostileText(Exception):
    """An error that raises SystemExit if its text is read."""

    def __str__(self) -> str:
        raise SystemExit(4)

    __repr__ = __str__


class HostileBase(BaseException):
    """A BaseException that raises if it is printed."""

    def __str__(self) -> str:
        raise KeyboardInterrupt


class HostileIdentity(Exception):
    """An error that raises if its class is read."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise SystemExit(5)


class HostileNotes(Exception):
    """An error with notes that cannot be read."""

    __notes__ = property(lambda self: 1 / 0)  # type: ignore[assignment]


class NamelessModule(Exception):
    """An error whose module is not text."""

    __module__ = 5  # type: ignore[assignment]


def _looped() -> Exception:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    return first


def _nested() -> Exception:
    error: Exception = ValueError("deep")
    for _ in range(500):
        error = ExceptionGroup("level", [error])
    return error


#: Name -> function that makes the exception. A new one each time, because an exception keeps its traceback.
RAISED: dict[str, Callable[[], BaseException]] = {
    "system_exit": lambda: SystemExit(7),
    "system_exit_text": lambda: SystemExit("bye"),
    "keyboard_interrupt": KeyboardInterrupt,
    "generator_exit": GeneratorExit,
    "base_exception": lambda: BaseException("base"),
    "base_group": lambda: BaseExceptionGroup("group", [SystemExit(1), KeyboardInterrupt()]),
    "cancelled": asyncio.CancelledError,
    "stop_iteration": StopIteration,
    "stop_async_iteration": StopAsyncIteration,
    "memory_error": MemoryError,
    "recursion_error": RecursionError,
    "own_timeout": lambda: TaskTimeout("mine"),
    "plain_timeout": TimeoutError,
    "broken_pipe": BrokenPipeError,
    "bad_descriptor": lambda: OSError(9, "Bad file descriptor"),
    "lone_surrogate": lambda: ValueError("\ud800"),
    "null_bytes": lambda: ValueError("\0" * 100),
    "huge_text": lambda: ValueError("x" * 10_000_000),
    "bytes_text": lambda: SyntaxError("text", ("f.py", 1, 2, b"bytes")),  # type: ignore[arg-type]
    "hostile_class": HostileClass,
    "hostile_text": HostileText,
    "hostile_base": HostileBase,
    "hostile_identity": HostileIdentity,
    "hostile_notes": HostileNotes,
    "nameless_module": NamelessModule,
    "looped_causes": _looped,
    "nested_groups": _nested,
    "retry_far": lambda: RetryLater(10**30),
    "retry_never": lambda: RetryLater(float("nan")),
    "retry_before": lambda: RetryLater(-5),
    "dead_hostile": lambda: DeadLetterNow(HostileText()),
}


PLAIN.update({f"raise_{name}": raising(make) for name, make in RAISED.items()})
ASYNC.update({f"raise_{name}": raising_async(make) for name, make in RAISED.items()})
