"""Database: keeps this thread's Django connections sound between the pieces of user code that run in it.

Django does that around a request. A thread that runs jobs needs more. A time limit may interrupt any bytecode, so also
the one between the driver's BEGIN and Django's note of it. Later statements then succeed and are never committed.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from django.db import connections
from django.db.backends.signals import connection_created

from django_delayq.exceptions import TransactionLeftOpen
from django_delayq.logs import logger
from django_delayq.task.outbox import is_ours


class _Thread(threading.local):
    """What is known of the connections of the current thread."""

    #: The thread has opened a connection at some time. Without this flag, each `clean()` costs 4 µs.
    opened = False
    #: A time limit interrupted the thread since the last `clean()`, so no connection can be trusted.
    invalidated = False


class ConnectionState(NamedTuple):
    """What `state_of()` finds out about a connection."""

    #: There is an open transaction, or there are commit hooks of one.
    unfinished: bool
    #: The next user of the connection must not get it as it is.
    unusable: bool


_thread = _Thread()


def assume_opened() -> None:
    """Make the next `clean()` check connections: one that failed during its set-up exists without a signal of it."""
    _thread.opened = True


def invalidate() -> None:
    """Make the next `clean()` close all connections of this thread: a time limit interrupted code that used them."""
    _thread.opened = _thread.invalidated = True


def clean(*, close: bool = False) -> TransactionLeftOpen | None:
    """Close connections that are inside a transaction, interrupted, broken, altered or too old; all of them if `close`.

    An open transaction is rolled back, and the error that names its databases is returned for the caller to record.
    Costs nothing in a thread that never opened a connection. Raises nothing.
    """
    if not _thread.opened:
        return None
    close, _thread.invalidated = close or _thread.invalidated, False
    left_open: list[str] = []
    for connection in connections.all(initialized_only=True):
        unfinished, unusable = _state_or_worst(connection)
        if unfinished:
            left_open.append(connection.alias)
        if unfinished or unusable or close:
            _force_close(connection)
        elif connection.connection is not None:
            try:
                connection.close_if_unusable_or_obsolete()
            except Exception:
                _force_close(connection)
        connection.queries_log.clear()
    return TransactionLeftOpen(aliases=left_open) if left_open else None


def state_of(connection: Any) -> ConnectionState:
    """Return the state of a connection, by Django's fields and by its driver. Raises errors of the driver."""
    unfinished = bool(connection.in_atomic_block or connection.savepoint_ids or connection.run_on_commit)
    driver = connection.connection
    if driver is None or not connection.settings_dict["AUTOCOMMIT"]:
        # Without autocommit each statement begins a transaction, and the project decides when it ends.
        return ConnectionState(unfinished, unusable=False)
    driver_state = _DRIVER_STATES.get(connection.vendor)
    if unfinished or driver_state is None:
        return ConnectionState(unfinished, unusable=False)
    return driver_state(driver, connection.autocommit)


def close_if_idle(connection: Any) -> bool:
    """Close a connection unless something would be lost with it; return whether it is closed. Raises nothing."""
    with suppress(Exception):
        # If the driver cannot report its state, `clean()` handles that at the end of the job.
        if connection.get_autocommit() and not any(state_of(connection)):
            connection.close()
    return connection.connection is None


def _state_or_worst(connection: Any) -> ConnectionState:
    try:
        return state_of(connection)
    except Exception as error:
        logger.warning(
            "Database connection %r is closed, since its driver cannot report its state: %s: %s",
            connection.alias,
            type(error).__name__,
            error,
        )
        # With autocommit all that succeeded is kept. Without it the last statements may be lost unnoticed.
        return ConnectionState(unfinished=not connection.autocommit, unusable=True)


def _sqlite_state(driver: Any, autocommit: bool) -> ConnectionState:
    # A driver whose autocommit differs from Django's begins a transaction at the next statement, unknown to Django.
    # The other drivers do the same.
    return ConnectionState(bool(driver.in_transaction), (driver.isolation_level is None) is not autocommit)


def _postgresql_state(driver: Any, autocommit: bool) -> ConnectionState:
    # psycopg and psycopg2 both use the numbers of libpq.
    status = driver.info.transaction_status
    if status == _PG_UNKNOWN:
        # The connection is lost or closed, and with it what autocommit had not kept.
        return ConnectionState(not (autocommit and driver.autocommit), unusable=True)
    return ConnectionState(status in _PG_IN_TRANSACTION, driver.autocommit is not autocommit)


def _mysql_state(driver: Any, autocommit: bool) -> ConnectionState:
    # Both drivers keep the status flags of the server's last reply, so this needs no round trip and works on a lost
    # connection too. PyMySQL has all flags; the lowest is SERVER_STATUS_IN_TRANS. mysqlclient only exposes whether
    # autocommit is on; if it is off, a transaction may be open.
    on = bool(driver.get_autocommit())
    status = getattr(driver, "server_status", None)
    inside = not on if status is None else bool(status & 1)
    return ConnectionState(inside, on is not autocommit or not getattr(driver, "open", True))


def _force_close(connection: Any) -> None:
    """Close a connection and abandon its transaction."""
    if connection.run_on_commit:
        _log_dropped_hooks(connection)
    # close() inside an atomic block leaves the rest to the end of the block, which never comes.
    connection.in_atomic_block = connection.needs_rollback = connection.closed_in_transaction = False
    connection.run_commit_hooks_on_set_autocommit_on = False
    connection.savepoint_ids, connection.atomic_blocks, connection.run_on_commit = [], [], []
    driver = connection.connection
    if driver is None:
        return
    with suppress(Exception):
        if getattr(connection, "pool", None):
            # The pool takes a closed connection back and opens another one in its place.
            driver.close()
    try:
        connection.close()
        if connection.connection is not None:
            # Django never closes an SQLite database in memory.
            driver.rollback()
    except Exception:
        connection.connection = None


def _log_dropped_hooks(connection: Any) -> None:
    hooks = [hook for _, hook, _ in connection.run_on_commit if not is_ours(hook)]
    names = [getattr(hook, "__qualname__", None) or repr(hook) for hook in hooks]
    if len(hooks) < len(connection.run_on_commit):
        names.append("the jobs enqueued in it")
    logger.error(
        "A transaction on database %r was left without running its commit hooks, which are dropped: %s",
        connection.alias,
        ", ".join(names),
    )


def _on_connection_created(**_: Any) -> None:
    _thread.opened = True


#: Transaction statuses of libpq: active, idle in a transaction, idle in a failed one; and connection lost.
_PG_IN_TRANSACTION, _PG_UNKNOWN = (1, 2, 3), 4
#: By vendor. For other databases only Django's own fields are known.
_DRIVER_STATES: dict[str, Callable[[Any, bool], ConnectionState]] = {
    "sqlite": _sqlite_state,
    "postgresql": _postgresql_state,
    "mysql": _mysql_state,
}
connection_created.connect(_on_connection_created, dispatch_uid="django_delayq.processes.database")
