"""Idle connections: closes the database connections that a coroutine has not used for half a second.

Django's asynchronous ORM runs in a thread of the job's own, whose connections live as long as the job. A thousand
sleeping coroutines would hold a thousand connections, and PostgreSQL allows a hundred.
"""

import asyncio
from contextlib import suppress
from contextvars import ContextVar
from time import monotonic
from typing import Any
from weakref import WeakSet

from asgiref.sync import SyncToAsync, ThreadSensitiveContext
from django.db import connections
from django.db.backends.signals import connection_created

from django_delayq.processes.database import close_if_idle

#: Seconds without a new cursor after which an idle connection is closed. To open one takes a few milliseconds, so a
#: coroutine that queries every second pays little, and one that queries steadily pays nothing.
_MAX_IDLE = 0.5


class IdleConnectionCloser:
    """The connections of one job that runs in an asyncio loop. Used by the loop's thread and by the job's own."""

    def __init__(self, context: ThreadSensitiveContext) -> None:
        self._context = context
        self._loop = asyncio.get_running_loop()
        #: Cursors still in use: `aiterator()` goes on reading from one after its loop's body has slept.
        self._cursors: WeakSet[Any] = WeakSet()
        #: Alias -> time.monotonic() at which the connection last made a cursor.
        self._used_at: dict[str, float] = {}
        #: A check is scheduled: one at a time serves all connections.
        self._check_scheduled = False

    def on_opened(self, connection: Any) -> None:
        """Watch a connection; called in the thread that opened it, each time it is opened."""
        # Patched once: a connection that was closed is opened again in the same object.
        if "make_cursor" not in vars(connection):
            connection.make_cursor = self._recording(connection.alias, connection.make_cursor)
            connection.make_debug_cursor = self._recording(connection.alias, connection.make_debug_cursor)
        self._used_at[connection.alias] = monotonic()
        self._schedule_check(_MAX_IDLE)

    def _recording(self, alias: str, make_cursor: Any) -> Any:
        def make_and_record(cursor: Any) -> Any:
            made = make_cursor(cursor)
            self._cursors.add(made)
            self._used_at[alias] = monotonic()
            return made

        return make_and_record

    def _schedule_check(self, seconds: float) -> None:
        if self._check_scheduled:
            return
        self._check_scheduled = True
        # RuntimeError: the loop is closed, so no job sleeps in it.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.call_later, seconds, self._submit_check)

    def _submit_check(self) -> None:
        executor = SyncToAsync.context_to_thread_executor.get(self._context)
        if executor is None:
            # Opened in a thread that is not the job's own; connections of its own may follow.
            self._check_scheduled = False
        else:
            # The executor runs it after the call that may be in progress.
            executor.submit(self._close_idle)

    def _close_idle(self) -> None:
        """Close each connection that is idle for long enough; schedule another check for the others."""
        self._check_scheduled = False
        waits: list[float] = []
        for connection in connections.all(initialized_only=True):
            if connection.connection is None:
                continue
            left = self._used_at.get(connection.alias, 0.0) + _MAX_IDLE - monotonic()
            if left > 0:
                waits.append(left)
            elif self._cursors or not close_if_idle(connection):
                waits.append(_MAX_IDLE)
        if waits:
            self._schedule_check(min(waits))


def close_while_idle(context: ThreadSensitiveContext) -> None:
    """Close idle connections of the current asyncio task; `context` is the one that gives the task its thread."""
    _closer.set(IdleConnectionCloser(context))


def _on_connection_created(connection: Any, **_: Any) -> None:
    # asgiref copies the task's context variables to the thread.
    if closer := _closer.get():
        closer.on_opened(connection)


_closer: ContextVar[IdleConnectionCloser | None] = ContextVar("delayq_idle_connection_closer", default=None)
connection_created.connect(_on_connection_created, dispatch_uid="django_delayq.processes.idle_connections")
