"""Outbox: jobs wait here for the commit, or go on at once.

A job enqueued inside transactions is sent when every connection of the thread that was in an atomic block has
committed; if one of them rolls back, it is dropped with its handle. Outside atomic blocks it is sent at once, and no
connection is opened.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, overload

from django.db import DEFAULT_DB_ALIAS, connections

from django_delayq import runtime
from django_delayq.exceptions import DelayQError, KeyHeld, ManualTransaction, StoreError
from django_delayq.log import logger
from django_delayq.task.handle import JobHandle
from django_delayq.task.sender import name_unsent, send, stream


class _Commit(partial[None]):
    """The commit hook that counts the commit of one connection."""


class _PendingSends:
    """The jobs of one transaction of one connection. Its commit hooks alone hold it, so nothing of it outlives them."""

    def __init__(self) -> None:
        #: Those whose connections have all committed, not sent yet.
        self.committed: list[JobHandle] = []
        self.latest: _Flush | None = None
        self._refused: list[KeyHeld] = []

    @classmethod
    def of(cls, connection: Any) -> "_PendingSends":
        """Return that of the transaction under way."""
        hooks = (hook for _, hook, _ in reversed(connection.run_on_commit))
        return next((hook.pending for hook in hooks if isinstance(hook, _Flush)), None) or cls()

    def send(self, *, last: bool) -> None:
        """Send what has committed. The last flush raises: Django runs no hook behind one that does."""
        failure = self._send()
        if not last:
            if failure is not None:
                left = ", ".join(handle.id for handle in self.committed)
                logger.warning(
                    "Jobs %s could not be sent after the commit. Its last hook tries again: %s", left, failure
                )
            return
        refused, self._refused, self.committed = self._refused, [], []
        error = failure or next(iter(refused), None)
        if error is not None:
            for each in refused:
                error.add_note(f"Not sent: {each.refused.id}: {each}.")
            raise error

    def _send(self) -> StoreError | None:
        """Send all that can be: neither a refused key nor the outage of one store keeps the others' jobs back."""
        by_store: dict[str | None, list[JobHandle]] = {}
        for handle in self.committed:
            by_store.setdefault(handle.backend, []).append(handle)
        self.committed = []
        failures: list[StoreError] = []
        for handles in by_store.values():
            left = handles
            while left:
                try:
                    send(left)
                except KeyHeld as error:
                    self._refused.append(error)
                    error.refused.drop()
                    left = [handle for handle in left if handle.draft is not None]
                except StoreError as error:
                    failures.append(error)
                    self.committed += error.unsent
                    break
                else:
                    break
        if len(failures) > 1:
            first, *others = failures
            for other in others:
                first.add_note(f"Of another store: {other}")
            name_unsent(first, self.committed, first.accepted)
        return failures[0] if failures else None


class _Flush:
    """The commit hook that sends what has committed; one per enqueue, of which those superseded do nothing."""

    skipped = False

    def __init__(self, pending: _PendingSends) -> None:
        self.pending = pending

    def __call__(self) -> None:
        if not self.skipped:
            self.pending.send(last=self.pending.latest is self)


def accept(handles: Sequence[JobHandle]) -> None:
    """Send each job now, or after the commit of the transactions its caller is in.

    Raises `StoreError`, `KeyHeld` where jobs are sent now, and `ManualTransaction` before anything is sent.
    """
    # Looked up once for all: for each job it would take 2 µs, a tenth of what a job of many costs.
    inside: dict[str | None, tuple[str, ...]] = {}
    waits: dict[tuple[str, ...], list[JobHandle]] = {}
    for handle in handles:
        draft = handle.draft
        if draft is not None:
            if draft.on_commit and draft.database not in inside:
                inside[draft.database] = open_transactions(draft.database)
            aliases = inside[draft.database] if draft.on_commit else ()
            waits.setdefault(aliases, []).append(handle)
    for aliases, waiting in waits.items():
        if aliases:
            _wait(aliases, waiting)
    send(waits.get((), []))


def _wait(aliases: tuple[str, ...], handles: Sequence[JobHandle]) -> None:
    missing = set(aliases)

    def committed(alias: str, pending: _PendingSends) -> None:
        missing.discard(alias)
        if not missing:
            pending.committed.extend(handles)

    for alias in aliases:
        connection = connections[alias]
        pending = _PendingSends.of(connection)
        if pending.latest is not None:
            # All jobs of a commit go in one batch, so of neighbours only the last sends. But a hook of the project in
            # between may raise, and Django runs none after it: what stands before such a hook must be sent before it.
            hooks = connection.run_on_commit
            pending.latest.skipped = bool(hooks) and hooks[-1][1] is pending.latest
        flush = pending.latest = _Flush(pending)
        connection.on_commit(_Commit(committed, alias, pending))
        # Without savepoint ids, or the rollback of a savepoint would take the flush of others' jobs with it.
        hook: tuple[Any, ...] = (set(), flush, False)
        connection.run_on_commit.append(hook)


def open_transactions(database: str | None = None) -> tuple[str, ...]:
    """Return the aliases of this thread's connections that are in an atomic block, or the named one if it is.

    Raises `ManualTransaction` for one whose autocommit is off: Django tells nobody of its commit. Unless it is named, a
    second database that settings.DATABASES leaves without autocommit counts only in an atomic block.
    """
    if database is None:
        chosen = [each for each in connections.all(initialized_only=True) if not _is_beside(each)]
    else:
        chosen = [connections[database]]
    for connection in chosen:
        if _is_manual(connection):
            raise ManualTransaction(
                f"the database connection {connection.alias!r} has its autocommit off, so a job cannot wait for its "
                f"commit: use transaction.atomic() instead of set_autocommit(False), enqueue after "
                f"set_autocommit(True), or send at once with using(on_commit=False) (Django's tasks: without "
                f"OPTIONS['ON_COMMIT'])"
            )
    in_transaction = runtime.current().in_transaction
    return tuple(connection.alias for connection in chosen if in_transaction(connection))


def _is_beside(connection: Any) -> bool:
    # Such a one is never outside a transaction once it was used: nothing in this thread could be enqueued any more. Of
    # the default database a job must not go ahead unnoticed.
    configured = connection.settings_dict["AUTOCOMMIT"]
    return not configured and connection.alias != DEFAULT_DB_ALIAS and not runtime.current().in_transaction(connection)


def _is_manual(connection: Any) -> bool:
    """Tell whether somebody else than Django commits. An atomic block within such a transaction commits nothing."""
    # One that is not open yet only seems to have no autocommit.
    if connection.connection is None:
        return False
    return not (connection.commit_on_exit if connection.in_atomic_block else connection.autocommit)


def is_ours(hook: object) -> bool:
    """Tell whether a connection's commit hook is one of this file's."""
    return isinstance(hook, (_Commit, _Flush))


@overload
def enqueue_many(jobs: Iterable[JobHandle], *, on_progress: None = None) -> list[JobHandle]: ...


@overload
def enqueue_many(jobs: Iterable[JobHandle], *, on_progress: Callable[[int], Any]) -> int: ...


def enqueue_many(
    jobs: Iterable[JobHandle], *, on_progress: Callable[[int], Any] | None = None
) -> list[JobHandle] | int:
    """Accept jobs made with `task.job()`, any tasks at any times, in chunks of up to 250 jobs and 1 MiB.

    Each chunk is stored whole or not at all, not the whole call. Delays count from this call. Returns the handles. With
    `on_progress`, it is called with the number accepted so far after each chunk, two chunks are in memory (one on its
    way while the next is made), jobs are sent at once, and that number is returned; inside a transaction that is an
    error. An error tells how many were accepted (`accepted`).
    """
    if on_progress is None:
        handles = [_from_now(handle) for handle in jobs]
        accept(handles)
        return handles
    _refuse_inside()
    # Also before each chunk: what makes the jobs may have begun one.
    return stream(map(_from_now, jobs), on_progress, check=_refuse_inside)


def _refuse_inside() -> None:
    if inside := open_transactions():
        raise DelayQError(
            f"enqueue_many(on_progress=…) sends at once, but this thread is in a transaction on {inside[0]!r}; "
            f"leave the transaction first, or leave on_progress out so that the jobs wait for the commit"
        )


def _from_now(handle: JobHandle) -> JobHandle:
    """Let the delay of a draft count from the call that enqueues it."""
    if not isinstance(handle, JobHandle):
        raise TypeError(f"enqueue_many() takes jobs made with task.job(…), got {type(handle).__name__}")
    if handle.draft is None:
        raise TypeError(
            f"enqueue_many() takes jobs made with task.job(…) and not sent yet; {handle.id} was sent or cancelled"
        )
    if handle.draft.delay_us is not None:
        handle.draft = replace(handle.draft, called_at=runtime.current().clock.steady())
    return handle
