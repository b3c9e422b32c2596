"""Release: close the database connections in which a coroutine has begun nothing for half a second.

Django's asynchronous ORM runs in a thread of the job's own, whose connections live as long as the job. A loop of a
thousand sleeping coroutines would hold a thousand connections, where PostgreSQL has a hundred.
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

from django_delayq.processes.database import let_go

#: Seconds without a new cursor after which a connection is closed, where nothing is under way in it. To open one takes
#: a few milliseconds, so a coroutine that queries every second pays little and one that queries steadily nothing.
_AGE = 0.5


class IdleConnectionCloser:
    """The connections of one job of a loop."""

    def __init__(self, context: ThreadSensitiveContext) -> None:
        self._context = context
        self._loop = asyncio.get_running_loop()
        #: Cursors that somebody has: `aiterator()` reads on from one after its loop's body has slept.
        self._cursors: WeakSet[Any] = WeakSet()
        #: When each connection last made a cursor, by its alias, as time.monotonic().
        self._used: dict[str, float] = {}
        #: A look is due: one at a time serves all connections.
        self._looks = False

    def opened(self, connection: Any) -> None:
        """Take note of a connection and look at it later; called in the thread that opened it, each time."""
        # Once for each: a connection that was closed is opened again in the same object.
        if "make_cursor" not in vars(connection):
            connection.make_cursor = self._noted(connection.alias, connection.make_cursor)
            connection.make_debug_cursor = self._noted(connection.alias, connection.make_debug_cursor)
        self._used[connection.alias] = monotonic()
        self._look_after(_AGE)

    def _noted(self, alias: str, make: Any) -> Any:
        def make_and_note(cursor: Any) -> Any:
            made = make(cursor)
            self._cursors.add(made)
            self._used[alias] = monotonic()
            return made

        return make_and_note

    def _look_after(self, seconds: float) -> None:
        if self._looks:
            return
        self._looks = True
        # A loop that is closed has no job that sleeps.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.call_later, seconds, self._submit)

    def _submit(self) -> None:
        executor = SyncToAsync.context_to_thread_executor.get(self._context)
        if executor is None:
            # Opened in a thread that is not the job's; those of its own may come later.
            self._looks = False
        else:
            # Behind the call that may be under way there.
            executor.submit(self._close_idle)

    def _close_idle(self) -> None:
        """Close each connection that was unused for long enough and has nothing under way; look again at the others."""
        self._looks = False
        waits: list[float] = []
        for connection in connections.all(initialized_only=True):
            if connection.connection is None:
                continue
            left = self._used.get(connection.alias, 0.0) + _AGE - monotonic()
            if left > 0:
                waits.append(left)
            elif self._cursors or not let_go(connection):
                waits.append(_AGE)
        if waits:
            self._look_after(min(waits))


def close_while_idle(context: ThreadSensitiveContext) -> None:
    """Let connections that this asyncio task opens be closed where it uses them no more; `context` is its thread's."""
    _release.set(IdleConnectionCloser(context))


def _note_connection(connection: Any, **_: Any) -> None:
    # Asgiref hands the task's context variables on to the thread.
    if release := _release.get():
        release.opened(connection)


_release: ContextVar[IdleConnectionCloser | None] = ContextVar("delayq_release", default=None)
connection_created.connect(_note_connection, dispatch_uid="django_delayq.processes.idle_connections")
