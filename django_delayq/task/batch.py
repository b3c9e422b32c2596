"""Chunk: jobs of one shard that are sent together."""

import logging
from collections.abc import Iterable, Iterator

from django_delayq.exceptions import KeyHeld, StoreError
from django_delayq.job.ids import to_text
from django_delayq.signals import announce, is_heard, job_enqueued
from django_delayq.store.enqueue import BATCH
from django_delayq.store.store import get_store
from django_delayq.task import registry
from django_delayq.task.handle import JobHandle

#: Bytes of bodies in one chunk, at most: what blocks Redis for a few milliseconds.
_BYTES = 1024 * 1024


class Batch:
    """One atomic step: packed, sent, accepted, announced. Meanwhile its handles have no drafts, and ask Redis."""

    def __init__(self, backend: str | None, shard: int, handles: list[JobHandle]) -> None:
        self.handles = handles
        self._shard = shard
        #: Whether anything of it went to Redis.
        self._asked = False
        self._drafts = [handle.draft for handle in handles if handle.draft]
        store = get_store(backend)
        if store.config.shards > 1 or any(draft.job.key is not None for draft in self._drafts):
            store.check_shards_once()
        self._batch = store.enqueue_api(shard).batch(self._drafts)
        for handle in handles:
            # Who cancels or reschedules it from here on would change what is packed already.
            handle.mark_packed()

    def send(self) -> bool:
        """Put it on its way; false where no connection may be held for it. Raises `StoreError`s."""
        # Before: who is interrupted cannot know how far it came.
        self._asked = True
        self._asked = self._batch.send()
        return self._asked

    def accept(self) -> None:
        """Wait until it is accepted. Raises `StoreError`s, and `KeyHeld`."""
        self._asked = True
        try:
            receipt = self._batch.receipt()
        except KeyHeld as error:
            key = self._drafts[error.index].job.key
            holder = to_text(bytes.fromhex(error.holder), self._shard)
            held = KeyHeld(
                f"key {key!r} is held by job {holder}, which has not ended", holder=holder, index=error.index
            )
            held.refused = self.handles[error.index]
            raise held from None
        for number, handle in enumerate(self.handles):
            handle.mark_sent(receipt, number)

    def announce(self) -> None:
        """Tell of its jobs: of most of them nobody is told, of Django's somebody always is."""
        heard = is_heard(job_enqueued, logging.DEBUG)
        for handle, draft in zip(self.handles, self._drafts, strict=True):
            job = draft.job
            if handle.created and (heard or job.django):
                task = registry.find(job.task)
                announce(job_enqueued, task, job=job)
                if job.django and task is not None:
                    task.on_enqueued(job)

    def restore(self, reason: BaseException) -> None:
        """Give the drafts back, to be sent again, whether or not it was stored."""
        self._batch.give_up()
        # Whatever else strikes (a time limit, Ctrl-C) does so anywhere.
        refused = isinstance(reason, KeyHeld) or (isinstance(reason, StoreError) and not reason.maybe_accepted)
        for handle, draft in zip(self.handles, self._drafts, strict=True):
            handle.mark_unsent(draft, maybe_sent=self._asked and not refused)


def in_batches(handles: Iterable[JobHandle]) -> Iterator[list[JobHandle]]:
    """Yield jobs as they come, up to 250 and 1 MiB of them together."""
    chunk: list[JobHandle] = []
    size = 0
    for handle in handles:
        length = len(handle.draft.body) if handle.draft else 0
        if chunk and size + length > _BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append(handle)
        size += length
        if len(chunk) == BATCH:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
