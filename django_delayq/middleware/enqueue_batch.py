"""Enqueue batch: one call of `task.enqueue_many()`, and what middlewares enter once for all its jobs."""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

#: What a middleware enters once for a batch.
V = TypeVar("V")


class EnqueueBatch:
    """One call of `task.enqueue_many()`, which all its jobs share. Used by one thread at a time."""

    def __init__(self) -> None:
        #: Number of jobs that have passed the middlewares so far.
        self.count = 0
        self._entered: dict[int, tuple[object, Any]] = {}
        self._exits = ExitStack()

    def once(self, owner: object, make: Callable[[], AbstractContextManager[V]]) -> V:
        """Return the value of what `make` returns, which is entered at the first job and left when the call ends.

        `owner` is the middleware that asks. An exception of the call, also one of the sending, is passed to its exit,
        which cannot suppress it.
        """
        # By identity, since a dataclass has no hash. The entry keeps the owner alive, so that no other has its id.
        if id(owner) not in self._entered:
            manager = make()
            value = manager.__enter__()
            self._exits.push(partial(_leave, manager))
            self._entered[id(owner)] = owner, value
        found: V = self._entered[id(owner)][1]
        return found

    def __enter__(self) -> "EnqueueBatch":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._exits.__exit__(kind, error, traceback)


def _leave(
    manager: AbstractContextManager[Any],
    kind: type[BaseException] | None,
    error: BaseException | None,
    traceback: TracebackType | None,
) -> None:
    """Leave a context manager. The exception continues: without it, the caller would take the jobs for enqueued."""
    manager.__exit__(kind, error, traceback)
