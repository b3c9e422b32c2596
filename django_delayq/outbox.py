"""Outbox: jobs wait here for the commit, and are sent from here in batches.

A job enqueued inside transactions is sent when every connection of the thread that was in an atomic block has
committed; if one of them rolls back, it is dropped with its handle. Outside atomic blocks it is sent at once, and no
connection is opened.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from time import monotonic
from typing import Any, overload

from django.db import connections

from django_delayq import registry
from django_delayq.exceptions import DelayQError, KeyHeld, StoreError
from django_delayq.handle import JobHandle
from django_delayq.job_id import to_text
from django_delayq.signals import announce, job_enqueued, logger
from django_delayq.store.intake import BATCH
from django_delayq.store.store import get_store

#: Bytes of bodies in one batch, at most: what blocks Redis for a few milliseconds.
_BATCH_BYTES = 1024 * 1024


class _Waiting(threading.local):
    """Jobs of this thread whose transactions have all committed, not sent yet; and the newest flush per connection."""

    def __init__(self) -> None:
        self.committed: list[JobHandle] = []
        self.newest: dict[str, _Flush] = {}


_waiting = _Waiting()


def accept(handles: Sequence[JobHandle]) -> None:
    """Send each job now, or after the commit of the transactions its caller is in.

    Raises `StoreError`, `KeyHeld` where jobs are sent now.
    """
    waits: dict[tuple[str, ...], list[JobHandle]] = {}
    for handle in handles:
        draft = handle.draft
        if draft is not None:
            aliases = open_transactions(draft.database) if draft.on_commit else ()
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
        connection.on_commit(partial(committed, alias))
        # Without savepoint ids, or the rollback of a savepoint would take the flush of others' jobs with it.
        hook: tuple[Any, ...] = (set(), flush, False)
        connection.run_on_commit.append(hook)


def open_transactions(database: str | None = None) -> tuple[str, ...]:
    """Return the aliases of this thread's connections that are in an atomic block, or the named one if it is."""
    if database is not None:
        return (database,) if connections[database].in_atomic_block else ()
    return tuple(
        connection.alias for connection in connections.all(initialized_only=True) if connection.in_atomic_block
    )


def send(handles: Sequence[JobHandle]) -> int:
    """Send jobs in chunks of up to 500 and 1 MiB, each atomic; returns how many were accepted.

    Raises `StoreError`, which names the unsent jobs and offers `resend()`, and `KeyHeld`; both tell how many were
    accepted before.
    """
    unsent = [handle for handle in handles if handle.draft is not None]
    accepted = 0
    for shard, chunk in _chunks(unsent):
        try:
            keyed = any(handle.draft and handle.draft.job.key is not None for handle in chunk)
            if keyed or get_store().config.shards > 1:
                get_store().check_shards_once()
            receipt = get_store().intake(shard).enqueue([handle.draft for handle in chunk if handle.draft])
        except StoreError as error:
            left = [handle for handle in unsent if handle.draft is not None]
            error.accepted = accepted
            error.offer_resend(left, partial(send, left))
            error.add_note(
                f"Accepted before: {accepted}. Not (surely) sent: {_named(left)}; error.resend() sends the same ids."
            )
            raise
        except KeyHeld as error:
            refused = chunk[error.index]
            key = refused.draft.job.key if refused.draft else ""
            holder = to_text(bytes.fromhex(error.holder), shard)
            held = KeyHeld(
                f"key {key!r} is held by job {holder}, which has not ended", holder=holder, index=error.index
            )
            held.accepted, held.refused = accepted, refused
            raise held from None
        for number, handle in enumerate(chunk):
            handle.mark_sent(receipt, number)
        accepted += len(chunk)
        for handle in chunk:
            if handle.created and (job := handle.job) is not None:
                announce(job_enqueued, registry.find(job.task), job=job)
    return accepted


@overload
def enqueue_many(jobs: Iterable[JobHandle], *, on_progress: None = None) -> list[JobHandle]: ...


@overload
def enqueue_many(jobs: Iterable[JobHandle], *, on_progress: Callable[[int], Any]) -> int: ...


def enqueue_many(
    jobs: Iterable[JobHandle], *, on_progress: Callable[[int], Any] | None = None
) -> list[JobHandle] | int:
    """Accept jobs made with `task.job()`, any tasks at any times, in chunks of up to 500 jobs and 1 MiB.

    Each chunk is stored whole or not at all, not the whole call. Delays count from this call. Returns the handles. With
    `on_progress`, it is called with the number accepted so far after each chunk, one chunk is in memory at a time, jobs
    are sent at once, and that number is returned; inside a transaction that is an error. An error tells how many were
    accepted (`accepted`).
    """
    if on_progress is None:
        handles = [_from_now(handle) for handle in jobs]
        accept(handles)
        return handles
    if inside := open_transactions():
        raise DelayQError(
            f"enqueue_many(on_progress=…) sends at once, but this thread is in a transaction on {inside[0]!r}; "
            f"leave the transaction first, or leave on_progress out so that the jobs wait for the commit"
        )
    accepted = 0
    stream = iter(jobs)
    try:
        while chunk := [_from_now(handle) for handle in islice(stream, BATCH)]:
            accepted += send(chunk)
            on_progress(accepted)
    except (StoreError, KeyHeld) as error:
        error.accepted += accepted
        raise
    return accepted


def _from_now(handle: JobHandle) -> JobHandle:
    """Let the delay of a draft count from the call that enqueues it."""
    if not isinstance(handle, JobHandle) or handle.draft is None:
        raise TypeError(f"enqueue_many() takes jobs made with task.job(…), got {type(handle).__name__}")
    handle.draft = replace(handle.draft, called_at=monotonic())
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


def _chunks(handles: Sequence[JobHandle]) -> Iterator[tuple[int, list[JobHandle]]]:
    by_shard: dict[int, list[JobHandle]] = {}
    for handle in handles:
        if handle.draft:
            by_shard.setdefault(handle.draft.job.shard, []).append(handle)
    for shard, members in by_shard.items():
        chunk: list[JobHandle] = []
        size = 0
        for handle in members:
            length = len(handle.draft.body) if handle.draft else 0
            if chunk and (len(chunk) == BATCH or size + length > _BATCH_BYTES):
                yield shard, chunk
                chunk, size = [], 0
            chunk.append(handle)
            size += length
        if chunk:
            yield shard, chunk


def _named(handles: Sequence[JobHandle]) -> str:
    names = ", ".join(handle.id for handle in handles[:5])
    return names if len(handles) <= 5 else f"{names} and {len(handles) - 5} more"
