"""Release: close the database connections of a coroutine that sleeps.

Django's asynchronous ORM runs in a thread of the job's own, whose connections live as long as the job. A loop of a
thousand sleeping coroutines would hold a thousand connections, where PostgreSQL has a hundred.
"""

import asyncio
from contextlib import suppress
from contextvars import ContextVar
from typing import Any
from weakref import WeakSet

from asgiref.sync import SyncToAsync, ThreadSensitiveContext
from django.db import connections
from django.db.backends.signals import connection_created

from django_delayq.database import look

#: Seconds after which a connection is closed once nothing is under way in it. To open one takes a few milliseconds.
_AGE = 0.5


class Release:
    """The connections of one job of a loop."""

    def __init__(self, context: ThreadSensitiveContext) -> None:
        self._context = context
        self._loop = asyncio.get_running_loop()
        #: Cursors that somebody has: `aiterator()` reads on from one after its loop's body has slept.
        self._cursors: WeakSet[Any] = WeakSet()

    def opened(self, connection: Any) -> None:
        """Take note of a connection; called in the thread that opened it."""
        # Once for each: a connection that was closed is opened again in the same object.
        if "make_cursor" not in vars(connection):
            connection.make_cursor = self._noted(connection.make_cursor)
            connection.make_debug_cursor = self._noted(connection.make_debug_cursor)
        self._close_later()

    def _noted(self, make: Any) -> Any:
        def make_and_note(cursor: Any) -> Any:
            made = make(cursor)
            self._cursors.add(made)
            return made

        return make_and_note

    def _close_later(self) -> None:
        # A loop that is closed has no job that sleeps.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.call_later, _AGE, self._submit)

    def _submit(self) -> None:
        executor = SyncToAsync.context_to_thread_executor.get(self._context)
        if executor is not None:
            # Behind the call that may be under way there.
            executor.submit(self._close_idle)

    def _close_idle(self) -> None:
        kept = False
        for connection in connections.all(initialized_only=True):
            if connection.connection is None:
                continue
            if self._cursors or not connection.get_autocommit() or any(look(connection)):
                kept = True
            else:
                connection.close()
        if kept:
            self._close_later()


def release_while_asleep(context: ThreadSensitiveContext) -> None:
    """Let connections that this asyncio task opens be closed while it sleeps; `context` is that of its thread."""
    _release.set(Release(context))


def _note_connection(connection: Any, **_: Any) -> None:
    # Asgiref hands the task's context variables on to the thread.
    if release := _release.get():
        release.opened(connection)


_release: ContextVar[Release | None] = ContextVar("delayq_release", default=None)
connection_created.connect(_note_connection, dispatch_uid="django_delayq.release")
