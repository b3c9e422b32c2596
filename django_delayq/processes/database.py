"""Database: keep this thread's Django connections sound between the pieces of user code that run in it.

Django does that around a request. A thread that runs jobs needs more: a time limit strikes between any two bytecodes,
so also after the driver began a transaction and before Django's fields say so. From then on statements succeed and are
never committed.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from django.db import connections
from django.db.backends.signals import connection_created

from django_delayq.exceptions import TransactionLeftOpen
from django_delayq.log import logger
from django_delayq.task.outbox import is_ours


class _Thread(threading.local):
    """What this thread did with connections."""

    #: It opened one at some time; to ask which are open costs 4 µs.
    opened = False
    #: A time limit struck since the last `clean()`: no connection can be trusted.
    cut_off = False


_thread = _Thread()


def look_again() -> None:
    """Make the next `clean()` look: a connection that failed during its set-up is there and was not announced."""
    _thread.opened = True


def distrust() -> None:
    """Make the next `clean()` close all connections of this thread: a time limit struck while they were in use."""
    _thread.opened = _thread.cut_off = True


def clean(*, close: bool = False) -> TransactionLeftOpen | None:
    """Close connections that are inside a transaction, cut off, broken, altered or too old; all of them if `close`.

    Such a transaction is rolled back; returns the error that says so, for the caller to record. Costs nothing in a
    thread that never opened a connection. Raises nothing.
    """
    if not _thread.opened:
        return None
    close, _thread.cut_off = close or _thread.cut_off, False
    left_open: list[str] = []
    for connection in connections.all(initialized_only=True):
        unfinished, spoilt = _look_or_guess(connection)
        if unfinished:
            left_open.append(connection.alias)
        if unfinished or spoilt or close:
            _drop(connection)
        elif connection.connection is not None:
            try:
                connection.close_if_unusable_or_obsolete()
            except Exception:
                _drop(connection)
        connection.queries_log.clear()
    return TransactionLeftOpen(aliases=left_open) if left_open else None


def look(connection: Any) -> tuple[bool, bool]:
    """Return whether a connection has anything to lose, and whether nobody should get it after its present user.

    To lose: an open transaction, or the commit hooks of one. Raises drivers' errors.
    """
    unfinished = bool(connection.in_atomic_block or connection.savepoint_ids or connection.run_on_commit)
    driver = connection.connection
    if driver is None or not connection.settings_dict["AUTOCOMMIT"]:
        # Without autocommit each statement begins a transaction: when it ends is the project's business.
        return unfinished, False
    ask = _ASK.get(connection.vendor)
    if unfinished or ask is None:
        return unfinished, False
    return ask(driver, connection.autocommit)


def let_go(connection: Any) -> bool:
    """Close a connection unless something would be lost with it; return whether it is closed. Raises nothing."""
    with suppress(Exception):
        # Where the driver cannot tell, that is for the end of the job.
        if connection.get_autocommit() and not any(look(connection)):
            connection.close()
    return connection.connection is None


def _look_or_guess(connection: Any) -> tuple[bool, bool]:
    try:
        return look(connection)
    except Exception as error:
        logger.warning(
            "Database connection %r is closed, since its driver does not tell its state: %s: %s",
            connection.alias,
            type(error).__name__,
            error,
        )
        # With autocommit all that went well is kept; without it the last of it may be lost, and nobody would know.
        return not connection.autocommit, True


def _ask_sqlite(driver: Any, autocommit: bool) -> tuple[bool, bool]:
    # Else the next statement begins a transaction that Django does not know of; so below.
    return bool(driver.in_transaction), (driver.isolation_level is None) is not autocommit


def _ask_postgresql(driver: Any, autocommit: bool) -> tuple[bool, bool]:
    # Both psycopg and psycopg2 number them as libpq does.
    status = driver.info.transaction_status
    if status == _UNKNOWN:
        # Lost or closed, and with it what autocommit had not kept.
        return not (autocommit and driver.autocommit), True
    return status in _INSIDE, driver.autocommit is not autocommit


def _ask_mysql(driver: Any, autocommit: bool) -> tuple[bool, bool]:
    # Both drivers keep the status flags of the server's last answer, so this needs no round trip and works on a lost
    # connection too. PyMySQL has all flags; the lowest is SERVER_STATUS_IN_TRANS. mysqlclient only exposes whether
    # autocommit is on; if it is off, a transaction may be open.
    on = bool(driver.get_autocommit())
    status = getattr(driver, "server_status", None)
    inside = not on if status is None else bool(status & 1)
    return inside, on is not autocommit or not getattr(driver, "open", True)


def _drop(connection: Any) -> None:
    """Close a connection for good, and with it the transaction that it is in."""
    if connection.run_on_commit:
        _log_dropped_hooks(connection)
    # close() inside an atomic block leaves the rest to the end of the block, which does not come.
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


def _note_connection(**_: Any) -> None:
    _thread.opened = True


#: Active, in a transaction, in a failed one; and of a connection that is not there any more.
_INSIDE, _UNKNOWN = (1, 2, 3), 4
#: What each vendor's driver says, as `look()` returns it; of other databases only Django's fields are known.
_ASK: dict[str, Callable[[Any, bool], tuple[bool, bool]]] = {
    "sqlite": _ask_sqlite,
    "postgresql": _ask_postgresql,
    "mysql": _ask_mysql,
}
connection_created.connect(_note_connection, dispatch_uid="django_delayq.processes.database")
