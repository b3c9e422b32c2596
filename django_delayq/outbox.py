"""Outbox: jobs wait here for the commit, or go on at once.

A job enqueued inside transactions is sent when every connection of the thread that was in an atomic block has
committed; if one of them rolls back, it is dropped with its handle. Outside atomic blocks it is sent at once, and no
connection is opened.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any, overload

from django.db import connections

from django_delayq.clock import steady
from django_delayq.exceptions import DelayQError, KeyHeld, StoreError
from django_delayq.handle import JobHandle
from django_delayq.log import logger
from django_delayq.sending import send, stream


class _Waiting(threading.local):
    """Jobs of this thread whose transactions have all committed, not sent yet; and the newest flush per connection."""

    def __init__(self) -> None:
        self.committed: list[JobHandle] = []
        self.newest: dict[str, _Flush] = {}


class _Commit(partial[None]):
    """The hook that takes the commit of one connection down."""


_waiting = _Waiting()
#: Whether a connection is in a transaction that decides about jobs. Tests replace it: their own never commits.
in_transaction: Callable[[Any], bool] = attrgetter("in_atomic_block")


def accept(handles: Sequence[JobHandle]) -> None:
    """Send each job now, or after the commit of the transactions its caller is in.

    Raises `StoreError`, `KeyHeld` where jobs are sent now.
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

    def committed(alias: str) -> None:
        missing.discard(alias)
        if not missing:
            _waiting.committed.extend(handles)

    for alias in aliases:
        connection = connections[alias]
        before = _waiting.newest.get(alias)
        if before is not None:
            before.last = False
            # All jobs of a commit go in one batch, so of neighbours only the last sends. But a hook of the project in
            # between may raise, and Django runs none after it: what stands before such a hook must be sent before it.
            before.superseded = bool(connection.run_on_commit) and connection.run_on_commit[-1][1] is before
        flush = _waiting.newest[alias] = _Flush()
        connection.on_commit(_Commit(committed, alias))
        # Without savepoint ids, or the rollback of a savepoint would take the flush of others' jobs with it.
        hook: tuple[Any, ...] = (set(), flush, False)
        connection.run_on_commit.append(hook)


def open_transactions(database: str | None = None) -> tuple[str, ...]:
    """Return the aliases of this thread's connections that are in an atomic block, or the named one if it is."""
    if database is not None:
        return (database,) if in_transaction(connections[database]) else ()
    return tuple(
        connection.alias for connection in connections.all(initialized_only=True) if in_transaction(connection)
    )


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
        handle.draft = replace(handle.draft, called_at=steady())
    return handle


class _Flush:
    """The hook that sends what has committed; one per wait, of which those superseded do nothing."""

    superseded = False
    last = True

    def __call__(self) -> None:
        if self.superseded:
            return
        handles, _waiting.committed = _waiting.committed, []
        try:
            _send_committed(handles)
        except StoreError as error:
            if self.last:
                raise
            # The last flush of this commit tries again, and its error names the jobs of all.
            logger.warning("%d jobs could not be sent yet after a commit: %s", len(error.unsent), error)
            _waiting.committed = list(error.unsent)


def _send_committed(handles: list[JobHandle]) -> None:
    """Send the jobs of a commit. One refused for its key does not keep the others from being sent."""
    first_refused: KeyHeld | None = None
    while handles:
        try:
            send(handles)
            break
        except KeyHeld as error:
            first_refused = first_refused or error
            error.refused.cancel()
            handles = [handle for handle in handles if handle.draft is not None]
    if first_refused is not None:
        raise first_refused
