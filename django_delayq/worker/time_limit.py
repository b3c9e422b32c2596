"""Time limit: raise TaskTimeout in a thread whose task runs too long.

CPython lets one thread raise an exception in another (PyThreadState_SetAsyncExc). It arrives at the next bytecode, so
not inside a blocking C call. One daemon thread watches all limits of the process; the first limit starts it.
"""

import ctypes
import heapq
import os
import threading
from contextlib import suppress
from itertools import count
from time import monotonic
from types import TracebackType
from typing import Protocol

from django_delayq.clock import SECOND_US
from django_delayq.exceptions import TaskTimeout

_set_async_exc = ctypes.pythonapi.PyThreadState_SetAsyncExc
_set_async_exc.argtypes = (ctypes.c_ulong, ctypes.py_object)

#: Number of limits at which ended ones are removed: a limit of an hour must not stay in memory for an hour.
_CLEAN_UP_SIZE = 1_000


class TimeLimit:
    """Limits the run time of a `with` block in the current thread. Raises `TaskTimeout` in it."""

    def __init__(self, limit_us: int) -> None:
        self._limit_us = limit_us
        self._lock = threading.Lock()
        self._thread = 0
        self._active = False
        #: Whether the limit expired, even if the code caught the exception.
        self.expired = False

    def __enter__(self) -> None:
        self._thread, self._active = threading.get_ident(), True
        try:
            watch(monotonic() + self._limit_us / SECOND_US, self)
        except BaseException:
            # The block does not begin, so `__exit__()` is not called.
            self._active = False
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            if not self._active:
                # The exception may not have arrived yet. It must not hit what this thread does next.
                _cancel_exception()
            self._active = False

    @property
    def active(self) -> bool:
        """Whether the block still runs within the limit."""
        return self._active

    def expire(self) -> None:
        """Raise TaskTimeout in the thread, unless the block has ended."""
        with self._lock:
            if self._active:
                self._active, self.expired = False, True
                _set_async_exc(self._thread, TaskTimeout)


class _Replacement(BaseException):
    """Arrives instead of an exception that is cancelled."""


def _cancel_exception() -> None:
    """Cancel an exception that was set for this thread and has not arrived.

    The documented way, a null pointer, is too slow: CPython 3.11 and 3.12 then look for an exception at every call in
    the process until the next one arrives. A call takes up to 1.5 times as long, and under a trace function (a
    debugger, coverage) 3.11 never stops looking.
    """
    with suppress(_Replacement):
        _set_async_exc(threading.get_ident(), _Replacement)
        # It arrives at once, unless another thread sets its own exception.
        for _ in range(100):
            pass


class Limit(Protocol):
    """A limit, as the watching thread sees it."""

    @property
    def active(self) -> bool:
        """Whether `expire()` still has an effect."""

    def expire(self) -> None:
        """End the limited code, unless it has ended. Must return quickly."""


class _Watch:
    def __init__(self) -> None:
        self._limits: list[tuple[float, int, Limit]] = []
        # The `with` of a Condition runs Python code. If an outer limit of the calling thread raised in there, the lock
        # would never be released, and no limit of the process would expire any more.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._order = count()
        self._running = False
        self._clean_up_at = _CLEAN_UP_SIZE

    def add(self, at: float, limit: Limit) -> None:
        with self._lock:
            if len(self._limits) >= self._clean_up_at:
                self._limits = [entry for entry in self._limits if entry[2].active]
                heapq.heapify(self._limits)
                self._clean_up_at = _CLEAN_UP_SIZE + 2 * len(self._limits)
            heapq.heappush(self._limits, (at, next(self._order), limit))
            if not self._running:
                threading.Thread(target=self._run, name="delayq-time-limits", daemon=True).start()
                # If the system has no room for a thread, the next limit tries again.
                self._running = True
            elif self._limits[0][2] is limit:
                self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._limits:
                    self._changed.wait()
                    continue
                wait = self._limits[0][0] - monotonic()
                if wait > 0:
                    self._changed.wait(min(wait, threading.TIMEOUT_MAX))
                    continue
                _, _, limit = heapq.heappop(self._limits)
            limit.expire()


_watch = _Watch()


def watch(at: float, limit: Limit) -> None:
    """Call `limit.expire()` at a moment of `time.monotonic()`, in the watching thread.

    Raises RuntimeError if that thread cannot start.
    """
    _watch.add(at, limit)


def _after_fork() -> None:
    """Start again without limits: the watching thread of the parent does not exist here."""
    global _watch
    _watch = _Watch()


os.register_at_fork(after_in_child=_after_fork)
