"""Sender: send jobs to their shards in batches, and keep the jobs that a shard did not accept.

Redis and its client work at the same time: while one batch is in flight, the next one is made and packed. A job in a
large call takes the longer of both times, not their sum. A pool that limits its connections lends none for this long;
then each batch is accepted before the next one is made.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Self

from django_delayq import runtime
from django_delayq.exceptions import JobRefused, StoreError, see
from django_delayq.signals import job_enqueued
from django_delayq.store.enqueue import BATCH
from django_delayq.store.store import get_store
from django_delayq.task.batch import Batch
from django_delayq.task.handle import JobHandle

#: Most bytes of bodies in one batch: these block Redis for a few milliseconds.
_MAX_BYTES = 1024 * 1024


def send(handles: Sequence[JobHandle]) -> int:
    """Send jobs in batches of up to 250 jobs and 1 MiB, each atomic; return the number of accepted jobs.

    Raises `StoreError`, which names the unsent jobs and offers `resend()`, and `JobRefused`. Both have the number of
    jobs accepted before as `accepted`.
    """
    # Each handle once: a sent handle has no draft, so its second place in a batch would have no result.
    unsent = [handle for handle in handles if handle.draft is not None]
    if len(unsent) > 1:
        unsent = _once(unsent)
    if len(unsent) == 1:
        _send_one(unsent[0])
        accepted = 1
    else:
        with Sender(partial(_complete, unsent)) as sender:
            sender.send(unsent)
        accepted = sender.accepted
    for observe in runtime.current().on_sent:
        observe(unsent)
    return accepted


def _send_one(handle: JobHandle) -> None:
    """Send one job. A `Sender` would cost 12 µs more CPU time, and nothing else is made while one job is in flight."""
    draft = handle.draft
    # `send()` has checked it.
    assert draft is not None
    try:
        store = get_store(handle.backend)
        batch = Batch(store, store.first_shard(draft.job), [handle])
        try:
            batch.accept()
        except BaseException as error:
            batch.restore(error)
            raise
    except (StoreError, JobRefused) as error:
        _complete([handle], error, 0)
        raise
    batch.announce()


def calls_project(handles: Iterable[JobHandle]) -> bool:
    """Return whether sending these jobs calls code of the project: receivers of signals, or a test's observers."""
    if job_enqueued.receivers or runtime.current().on_sent:
        return True
    return any(handle.draft is not None and handle.draft.job.kind.has_hooks for handle in handles)


def stream(handles: Iterable[JobHandle], on_progress: Callable[[int], Any], *, check: Callable[[], None]) -> int:
    """Send jobs while they are made; return the number of accepted jobs. Calls `on_progress` with it after each batch.

    `check` is called before each batch is sent. Raises what `send()`, `check`, `on_progress` and the iterator of jobs
    raise; earlier batches are accepted and reported by then.
    """
    # The batches that may not be accepted yet: one is in flight while the next one is made.
    recent: deque[list[JobHandle]] = deque(maxlen=2)

    def complete(error: StoreError | JobRefused, accepted: int) -> None:
        _complete([handle for batch in recent for handle in batch], error, accepted)

    def checked() -> Iterator[list[JobHandle]]:
        try:
            for batch in in_batches(handles):
                check()
                recent.append(batch)
                yield batch
        except Exception:
            # Report the batch in flight first.
            report(sender.finish())
            raise

    def report(accepted: list[JobHandle]) -> None:
        if accepted:
            for observe in runtime.current().on_sent:
                observe(accepted)
            on_progress(sender.accepted)

    sender = Sender(complete)
    try:
        with sender:
            for batch in checked():
                report(sender.send(_once(batch)))
            report(sender.finish())
    except Exception as error:
        if error is not sender.failure:
            error.add_note(f"enqueue_many() had accepted {sender.accepted} jobs by then.")
        raise
    return sender.accepted


def name_unsent(error: StoreError, handles: Sequence[JobHandle], accepted: int) -> None:
    """Add to an error the jobs that were not, or not surely, sent, and a way to send them again."""
    left = [handle for handle in handles if handle.draft is not None]
    # An earlier call may have stored them, whatever this one did.
    error.maybe_accepted = error.maybe_accepted or any(handle.maybe_sent for handle in left)
    error.offer_resend(left, partial(send, left))
    when = "When Redis works again," if error.retryable else "Correct the cause, then"
    error.add_note(
        f"Accepted before: {accepted}. Not (surely) sent: {names_of(left)}. {when} error.resend() sends the same ids. "
        f"{see('troubleshooting#jobs-were-not-sent')}"
    )


def names_of(handles: Sequence[JobHandle]) -> str:
    """Return the ids of the first five jobs, and how many more there are."""
    names = ", ".join(handle.id for handle in handles[:5])
    return names if len(handles) <= 5 else f"{names} and {len(handles) - 5} more"


def _complete(handles: Sequence[JobHandle], error: StoreError | JobRefused, accepted: int) -> None:
    error.accepted = accepted
    if isinstance(error, StoreError):
        name_unsent(error, handles, accepted)


def in_batches(handles: Iterable[JobHandle]) -> Iterator[list[JobHandle]]:
    """Yield jobs in the order they come, up to 250 jobs and 1 MiB together."""
    batch: list[JobHandle] = []
    size = 0
    for handle in handles:
        length = len(handle.draft.body) if handle.draft else 0
        if batch and size + length > _MAX_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(handle)
        size += length
        if len(batch) == BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class Sender:
    """Sends the batches of one call. A context manager, which waits for the reply to each batch that was sent."""

    def __init__(self, complete: Callable[[StoreError | JobRefused, int], None]) -> None:
        """`complete` is called with the error that ended the sending, and the number of jobs accepted before it."""
        #: Jobs accepted so far.
        self.accepted = 0
        #: The error of the store that ended the sending.
        self.failure: StoreError | JobRefused | None = None
        self._complete = complete
        self._in_flight: Batch | None = None
        self._unannounced: list[Batch] = []

    def send(self, handles: Iterable[JobHandle]) -> list[JobHandle]:
        """Send jobs by shard, each batch after the one before is accepted; return the jobs accepted meanwhile.

        `handles` must not contain a job twice. The last batch may still be in flight. Raises `StoreError` and
        `KeyHeld`.
        """
        accepted, batches = list[JobHandle](), _by_shard(handles)
        while True:
            with self._recorded_failure():
                # To find the shard of a job may take a round trip, too.
                if (found := next(batches, None)) is None:
                    return accepted
                backend, shard, members = found
                batch = Batch(get_store(backend), shard, members)
                try:
                    self._accept()
                    self._in_flight = batch
                    sent = batch.send()
                except BaseException as error:
                    self._in_flight = None
                    batch.restore(error)
                    raise
                # Wait for the first reply before more batches: Redis may not know the script yet.
                if not sent or not self.accepted:
                    self._accept()
            # Receivers of signals may raise anything, which is not a failure of this call.
            accepted += self._announce()

    def finish(self) -> list[JobHandle]:
        """Wait for the batch in flight and return its jobs. Raises as `send()` does."""
        with self._recorded_failure():
            self._accept()
        return self._announce()

    @contextmanager
    def _recorded_failure(self) -> Iterator[None]:
        try:
            yield
        except (StoreError, JobRefused) as error:
            self.failure = error
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, Exception):
            if self._in_flight is not None:
                self._in_flight.restore(error)
            return
        try:
            # Even after an error in the code that makes the jobs: the number of accepted jobs must be known.
            self.finish()
        except (StoreError, JobRefused) as late:
            self._complete(late, self.accepted)
            raise
        if self.failure is not None:
            self._complete(self.failure, self.accepted)

    def _accept(self) -> None:
        batch, self._in_flight = self._in_flight, None
        if batch is not None:
            try:
                batch.accept()
            except BaseException as error:
                batch.restore(error)
                self.accepted += batch.accepted
                batch.announce()
                raise
            self.accepted += batch.accepted
            self._unannounced.append(batch)

    def _announce(self) -> list[JobHandle]:
        announced = []
        while self._unannounced:
            batch = self._unannounced.pop(0)
            batch.announce()
            announced += batch.handles
        return announced


def _once(handles: Iterable[JobHandle]) -> list[JobHandle]:
    # By identity: the id of an unsent handle may change, so such a handle has no hash.
    return list({id(handle): handle for handle in handles}.values())


def _by_shard(handles: Iterable[JobHandle]) -> Iterator[tuple[str | None, int, list[JobHandle]]]:
    # Jobs that replace others are stored by another script.
    by_shard: dict[tuple[str | None, int, bool], list[JobHandle]] = {}
    for handle in handles:
        if draft := handle.draft:
            shard = get_store(handle.backend).first_shard(draft.job)
            by_shard.setdefault((handle.backend, shard, draft.replaces), []).append(handle)
    for (backend, shard, _), members in by_shard.items():
        # A receiver of the signals of an earlier batch may have cancelled some of these.
        for batch in in_batches(handle for handle in members if handle.draft):
            yield backend, shard, batch
