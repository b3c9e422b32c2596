"""Transactions: what a commit is in a test that runs in a transaction of its own, which never commits.

Jobs wait for the transactions of the code under test, not for that of the test. They are sent when the outermost
`atomic()` block of the code ends, and dropped if it rolls back, as in production.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.transaction import Atomic

from django_delayq import runtime
from django_delayq.task import outbox


@contextmanager
def commits_of_the_code() -> Iterator[None]:
    """Let jobs wait for the transactions of the code under test only."""
    # Jobs of setUpTestData() belong to no test.
    earlier = [hook for connection in connections.all(initialized_only=True) for hook in _ours(connection)]
    leave = Atomic.__exit__

    def leave_and_send(atomic: Atomic, kind: Any, error: Any, trace: Any) -> None:
        connection = connections[atomic.using or DEFAULT_DB_ALIAS]
        failed = kind is not None or connection.needs_rollback
        leave(atomic, kind, error, trace)
        if connection.in_atomic_block and not _in_transaction_of_the_code(connection):
            hooks = [hook for hook in _ours(connection) if hook not in earlier]
            connection.run_on_commit = [entry for entry in connection.run_on_commit if entry[1] not in hooks]
            for hook in hooks if not failed else ():
                hook()

    # Django has no hook for the end of a block inside the transaction of a TestCase, because it commits nothing.
    with (
        runtime.override(in_transaction=_in_transaction_of_the_code),
        patch.object(Atomic, "__exit__", leave_and_send),
    ):
        yield


def _in_transaction_of_the_code(connection: Any) -> bool:
    """Return whether a connection is in an atomic block other than those of Django's TestCase."""
    return bool(connection.in_atomic_block and not all(block._from_testcase for block in connection.atomic_blocks))


def _ours(connection: Any) -> list[Any]:
    return [entry[1] for entry in connection.run_on_commit if outbox.is_ours(entry[1])]
