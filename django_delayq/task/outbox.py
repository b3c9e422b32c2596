"""Outbox: jobs wait here for the commit of transactions.

A job that is enqueued inside transactions is sent after every connection of the thread that is in an atomic block has
committed. If one of them rolls back, the job is dropped. Outside atomic blocks a job is sent at once, and no connection
is opened.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, overload

from asgiref.sync import sync_to_async
from django.db import DEFAULT_DB_ALIAS, connections

from django_delayq import runtime
from django_delayq.exceptions import DelayQError, JobRefused, ManualTransaction, StoreError, TenantFull
from django_delayq.logs import logger
from django_delayq.store.client.async_calls import in_thread
from django_delayq.task.handle import JobHandle
from django_delayq.task.sender import calls_project, name_unsent, names_of, send, stream

#: Most errors of one commit whose texts are notes of the error that is raised.
MOST_NOTES = 20
#: What is done after a commit beside sending jobs. It must be safe to repeat.
Change = Callable[[], object]


class _Commit(partial[None]):
    """Commit hook: records that one connection committed."""


class _PendingSends:
    """The jobs of one transaction of one connection. Only commit hooks refer to it, so it does not outlive them."""

    def __init__(self) -> None:
        #: Jobs whose connections have all committed, and that are not sent yet; and changes that are not made yet.
        self.committed: list[JobHandle] = []
        self.changes: list[Change] = []
        self.latest: _Flush | None = None
        #: Each error, and the jobs that were not sent because of it.
        self._refused: list[tuple[JobRefused, list[JobHandle]]] = []

    @classmethod
    def of(cls, connection: Any) -> "_PendingSends":
        """Return the instance of the current transaction."""
        hooks = (hook for _, hook, _ in reversed(connection.run_on_commit))
        return next((hook.pending for hook in hooks if isinstance(hook, _Flush)), None) or cls()

    def send(self, *, last: bool) -> None:
        """Send the committed jobs. Only the last flush raises: Django runs no hook after one that raises."""
        failure = self._send()
        if not last:
            if failure is not None:
                left = ", ".join(handle.id for handle in self.committed)
                logger.warning("Jobs %s could not be sent after the commit; its last hook retries: %s", left, failure)
            return
        refused, self._refused, self.committed, self.changes = self._refused, [], [], []
        error = failure or next((each for each, _ in refused), None)
        if error is not None:
            for each, handles in refused[:MOST_NOTES]:
                error.add_note(f"Not sent: {names_of(handles)}: {each}.")
            if len(refused) > MOST_NOTES:
                error.add_note(f"Not sent either: {names_of([handle for _, [handle, *_] in refused[MOST_NOTES:]])}.")
            raise error

    def _send(self) -> StoreError | None:
        """Send all jobs possible: neither a refused job nor the outage of one store delays the other jobs."""
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
                except JobRefused as error:
                    for each, refused in _refusals(error, left):
                        self._refused.append((each, refused))
                        for handle in refused:
                            handle.drop()
                    left = [handle for handle in left if handle.draft is not None]
                except StoreError as error:
                    failures.append(error)
                    self.committed += error.unsent
                    break
                else:
                    break
        try:
            # In their order, and none after one that fails: one may undo another.
            while self.changes:
                self.changes[0]()
                self.changes.pop(0)
        except StoreError as error:
            failures.append(error)
        if len(failures) > 1:
            first, *others = failures
            for other in others:
                first.add_note(f"Also after the commit: {other}")
            name_unsent(first, self.committed, first.accepted)
        if self.changes:
            first = failures[0]
            first.offer_resend(self.committed, partial(_send_again, self.committed, self.changes))
            first.add_note(f"Not (surely) made: {len(self.changes)} changes of schedules; error.resend() makes them.")
        return failures[0] if failures else None


def _refusals(error: JobRefused, left: Sequence[JobHandle]) -> Iterable[tuple[JobRefused, list[JobHandle]]]:
    """Return each error with the jobs that it refuses: of a full tenant also those without a key that follow.

    Sending these batch by batch would take a round trip each. Those with a key are sent: for such a call there may be a
    job already.
    """
    if not isinstance(error, TenantFull):
        return [(error, [error.refused])]
    by_tenant: dict[tuple[str, str | None], tuple[JobRefused, list[JobHandle]]] = {}
    named = set[int]()
    for each in (error, *error.others):
        job = each.refused.draft.job
        by_tenant[job.queue, job.tenant] = each, []
        named.update(map(id, each.all_refused))
    for handle in left:
        if handle.draft is not None and (handle.draft.job.queue, handle.draft.job.tenant) in by_tenant:
            _, refused = by_tenant[handle.draft.job.queue, handle.draft.job.tenant]
            if id(handle) in named or (refused and handle.draft.job.key is None):
                refused.append(handle)
    return by_tenant.values()


def _send_again(handles: Sequence[JobHandle], changes: Sequence[Change]) -> None:
    pending = _PendingSends()
    pending.committed, pending.changes = list(handles), list(changes)
    pending.send(last=True)


class _Flush:
    """Commit hook: sends the committed jobs. Each enqueue adds one; a skipped one does nothing."""

    skipped = False

    def __init__(self, pending: _PendingSends) -> None:
        self.pending = pending

    def __call__(self) -> None:
        if not self.skipped:
            self.pending.send(last=self.pending.latest is self)


def accept(handles: Sequence[JobHandle]) -> None:
    """Send each job now, or after the commit of the caller's transactions.

    Raises `StoreError` and `JobRefused` if jobs are sent now, and `ManualTransaction` before anything is sent.
    """
    send(_without_waiting(handles))


async def aaccept(handles: Sequence[JobHandle]) -> None:
    """Do what `accept()` does, from async code.

    Transactions belong to a thread, the one in which asgiref runs synchronous code. That thread therefore checks for
    an open one. Sending needs no such thread, unless it calls code of the project.
    """
    ready = await sync_to_async(_without_waiting, thread_sensitive=True)(handles)
    if ready and calls_project(ready):
        await sync_to_async(send, thread_sensitive=True)(ready)
    elif ready:
        await in_thread(send, ready)


def _without_waiting(handles: Sequence[JobHandle]) -> list[JobHandle]:
    """Return the jobs to send now; the others are sent after the commit of the caller's transactions."""
    # Once for all jobs: for each job it takes 2 µs, a tenth of the cost of a job in a large batch.
    inside: dict[str | None, tuple[str, ...]] = {}
    ready: list[JobHandle] = []
    waits: dict[tuple[str, ...], list[JobHandle]] = {}
    for handle in handles:
        draft = handle.draft
        if draft is None:
            continue
        if draft.on_commit and draft.database not in inside:
            inside[draft.database] = open_transactions(draft.database)
        if draft.on_commit and inside[draft.database]:
            waits.setdefault(inside[draft.database], []).append(handle)
        else:
            ready.append(handle)
    for aliases, waiting in waits.items():
        _wait(aliases, partial(_add_jobs, waiting))
    return ready


def _add_jobs(handles: Sequence[JobHandle], pending: _PendingSends) -> None:
    pending.committed.extend(handles)


def after_commit(aliases: Sequence[str], change: Change) -> None:
    """Make a change once each of these connections has committed; not at all if one of them rolls back.

    It may raise `StoreError`, and is then made again by the `resend()` of that error.
    """
    _wait(aliases, lambda pending: pending.changes.append(change))


def _wait(aliases: Sequence[str], add: Callable[[_PendingSends], object]) -> None:
    """Call `add` with what the last of these connections sends after its commit."""
    missing = set(aliases)

    def committed(alias: str, pending: _PendingSends) -> None:
        missing.discard(alias)
        if not missing:
            add(pending)

    for alias in aliases:
        connection = connections[alias]
        pending = _PendingSends.of(connection)
        if pending.latest is not None:
            # All jobs of a commit go in one batch, so of adjacent hooks only the last sends. A hook of the project in
            # between may raise, and Django runs no hook after it: jobs enqueued before such a hook are sent before it.
            hooks = connection.run_on_commit
            pending.latest.skipped = bool(hooks) and hooks[-1][1] is pending.latest
        flush = pending.latest = _Flush(pending)
        connection.on_commit(_Commit(committed, alias, pending))
        # Without savepoint ids: the rollback of a savepoint must not remove the flush of other jobs.
        hook: tuple[Any, ...] = (set(), flush, False)
        connection.run_on_commit.append(hook)


def open_transactions(database: str | None = None) -> tuple[str, ...]:
    """Return the aliases of this thread's connections that are in an atomic block; with `database`, only that one.

    Raises `ManualTransaction` for a connection whose autocommit is off: Django has no hook for its commit. A second
    database that DATABASES configures without autocommit counts only in an atomic block, unless it is named.
    """
    in_transaction = runtime.current().in_transaction
    chosen = connections.all(initialized_only=True) if database is None else [connections[database]]
    inside = []
    for connection in chosen:
        if database is None and _is_beside(connection):
            continue
        if _is_manual(connection):
            raise ManualTransaction(
                f"the database connection {connection.alias!r} has its autocommit off, so a job cannot wait for its "
                f"commit: use transaction.atomic() instead of set_autocommit(False), enqueue after "
                f"set_autocommit(True), or send at once with using(on_commit=False) (Django's tasks: without "
                f"OPTIONS['ON_COMMIT'])"
            )
        if in_transaction(connection):
            inside.append(connection.alias)
    return tuple(inside)


def _is_beside(connection: Any) -> bool:
    # Once used, such a connection is always in a transaction, and this thread could never enqueue a job again. The
    # default database is excluded: a job must not run before its commit unnoticed.
    configured = connection.settings_dict["AUTOCOMMIT"]
    return not configured and connection.alias != DEFAULT_DB_ALIAS and not runtime.current().in_transaction(connection)


def _is_manual(connection: Any) -> bool:
    """Return whether other code than Django commits. An atomic block inside such a transaction commits nothing."""
    # A connection that is not open only seems to have no autocommit.
    if connection.connection is None:
        return False
    return not (connection.commit_on_exit if connection.in_atomic_block else connection.autocommit)


def is_ours(hook: object) -> bool:
    """Return whether a commit hook of a connection belongs to the outbox."""
    return isinstance(hook, (_Commit, _Flush))


@overload
def enqueue_many(jobs: Iterable[JobHandle], *, on_progress: None = None) -> list[JobHandle]: ...


@overload
def enqueue_many(jobs: Iterable[JobHandle], *, on_progress: Callable[[int], Any]) -> int: ...


def enqueue_many(
    jobs: Iterable[JobHandle], *, on_progress: Callable[[int], Any] | None = None
) -> list[JobHandle] | int:
    """Enqueue jobs made with `task.job()`, of any tasks and times, in batches of up to 250 jobs and 1 MiB.

    Each batch is stored whole or not at all; the whole call is not atomic. Delays count from this call. Returns the
    handles. An error has the number of accepted jobs as `accepted`.

    With `on_progress` the jobs are sent while they are made, and at most two batches are in memory. It is called with
    the number of jobs accepted so far after each batch, and that number is returned. It is an error in a transaction.
    """
    if on_progress is None:
        handles = [_from_now(handle) for handle in jobs]
        accept(handles)
        return handles
    _refuse_inside()
    # Also before each batch: the code that makes the jobs may have begun a transaction.
    return stream(map(_from_now, jobs), on_progress, check=_refuse_inside)


async def aenqueue_many(jobs: Iterable[JobHandle]) -> list[JobHandle]:
    """Do what `enqueue_many()` does, from async code."""
    handles = [_from_now(handle) for handle in jobs]
    await aaccept(handles)
    return handles


def _refuse_inside() -> None:
    if inside := open_transactions():
        raise DelayQError(
            f"enqueue_many(on_progress=…) sends at once, but this thread is in a transaction on {inside[0]!r}; "
            f"leave the transaction first, or leave on_progress out so that the jobs wait for the commit"
        )


def _from_now(handle: JobHandle) -> JobHandle:
    """Make the delay of a job count from the call that enqueues it."""
    if not isinstance(handle, JobHandle):
        raise TypeError(f"enqueue_many() takes jobs made with task.job(…), got {type(handle).__name__}")
    if handle.draft is None:
        raise TypeError(
            f"enqueue_many() takes jobs made with task.job(…) and not sent yet; {handle.id} was sent or cancelled"
        )
    if handle.draft.delay_us is not None:
        handle.draft = replace(handle.draft, called_at=runtime.current().clock.steady())
    return handle
