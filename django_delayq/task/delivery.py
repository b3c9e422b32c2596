"""Delivery: chunks of jobs one after the other, each on its way while the next is made and packed.

Redis and its client work at the same time: one job of many takes the longer of both, not their sum. Where a pool limits
its connections none is held, and each chunk is answered at once.
"""

from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Self

from django_delayq.exceptions import KeyHeld, StoreError
from django_delayq.task.batch import Batch, in_batches
from django_delayq.task.handle import JobHandle


class Delivery:
    """What goes to Redis in one call; as a context manager, so that nothing taken is left without its receipt."""

    def __init__(self, tell: Callable[[StoreError | KeyHeld, int], None]) -> None:
        #: Jobs accepted so far.
        self.accepted = 0
        #: Why it ended, where that was the store's.
        self.failure: StoreError | KeyHeld | None = None
        #: Called with that, and with the number of jobs accepted before.
        self._tell = tell
        self._under_way: Batch | None = None
        self._unannounced: list[Batch] = []

    def take(self, handles: Iterable[JobHandle]) -> list[JobHandle]:
        """Send these jobs by shards, each chunk once that before it is accepted; returns what was accepted meanwhile.

        Each job is given once. The last chunk may be under way still. Raises `StoreError`s, and `KeyHeld`.
        """
        accepted = []
        for backend, shard, members in _by_place(handles):
            try:
                chunk = Batch(backend, shard, members)
                try:
                    self._accept()
                    self._under_way = chunk
                    sent = chunk.send()
                except BaseException as error:
                    self._under_way = None
                    chunk.restore(error)
                    raise
                # The first is answered before more are made: Redis may not know the script yet.
                if not sent or not self.accepted:
                    self._accept()
            except (StoreError, KeyHeld) as error:
                self.failure = error
                raise
            accepted += self._announce()
        return accepted

    def finish(self) -> list[JobHandle]:
        """Wait for what is under way, and return it. Raises as `take()` does."""
        try:
            self._accept()
        except (StoreError, KeyHeld) as error:
            self.failure = error
            raise
        return self._announce()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, Exception):
            if self._under_way is not None:
                self._under_way.restore(error)
            return
        try:
            # Also where somebody's code failed meanwhile: how many were accepted is to be known.
            self.finish()
        except (StoreError, KeyHeld) as late:
            self._tell(late, self.accepted)
            raise
        if self.failure is not None:
            self._tell(self.failure, self.accepted)

    def _accept(self) -> None:
        chunk, self._under_way = self._under_way, None
        if chunk is not None:
            try:
                chunk.accept()
            except BaseException as error:
                chunk.restore(error)
                raise
            self.accepted += len(chunk.handles)
            self._unannounced.append(chunk)

    def _announce(self) -> list[JobHandle]:
        announced = []
        while self._unannounced:
            chunk = self._unannounced.pop(0)
            chunk.announce()
            announced += chunk.handles
        return announced


def _by_place(handles: Iterable[JobHandle]) -> Iterator[tuple[str | None, int, list[JobHandle]]]:
    by_place: dict[tuple[str | None, int], list[JobHandle]] = {}
    for handle in handles:
        if handle.draft:
            by_place.setdefault((handle.backend, handle.draft.job.shard), []).append(handle)
    for (backend, shard), members in by_place.items():
        # Whoever hears of the first may cancel others.
        for chunk in in_batches(handle for handle in members if handle.draft):
            yield backend, shard, chunk
