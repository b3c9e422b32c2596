"""Served: the queues one worker serves on one shard, and their bells."""

import contextlib
from collections.abc import Iterator
from time import monotonic

from django_delayq.exceptions import StoreError
from django_delayq.store.shard import Shard


class Served:
    """Named queues in strict order, or all there are."""

    def __init__(self, shard: Shard, chosen: tuple[str, ...]) -> None:
        self._shard = shard
        self._waker = shard.waker()
        #: Strictly in this order; else the best rank of all first.
        self.strict = bool(chosen)
        self.queues = chosen
        self._outdated = False
        #: A bell may have rung unheard: the worker asks. Only an answer shows that Redis is back, too.
        self.missed = False

    @property
    def bells(self) -> list[str]:
        """The keys to listen to."""
        bells = [self._shard.keys.bell(queue) for queue in self.queues]
        return bells if self.strict else [*bells, self._nameless]

    @property
    def _nameless(self) -> str:
        """The bell that tells of queues this worker has not heard of."""
        return self._shard.keys("bell")

    @property
    def listening(self) -> bool:
        """Whether the bells are listened to."""
        return self._waker.listening

    def listen(self, *, wanted: bool) -> int:
        """Have the bells listened to where that is wanted; returns the socket to wait on, or -1."""
        if wanted:
            with self._unless_missed():
                self._waker.listen(self.bells, now=monotonic())
        return self._waker.fileno()

    def hear(self, *, wanted: bool) -> bool:
        """Read the bell that rang; returns whether there may be work. One that is not wanted is rung for others."""
        with self._unless_missed():
            bell = self._waker.take()
            if bell and not wanted:
                self._waker.ring(bell)
        self._outdated = self._outdated or (wanted and not self.strict and bell == self._nameless)
        return bell is not None and wanted

    def close(self) -> None:
        """Let go of the connection."""
        self._waker.close()

    @contextlib.contextmanager
    def _unless_missed(self) -> Iterator[None]:
        try:
            yield
        except StoreError:
            self.missed = True
            raise

    def counted(self, number: int, *, flushed: bool) -> bool:
        """Compare with the number of queues there are; true where this worker may know others.

        Their number alone does not tell where the server was flushed or replaced, and other queues came in their place.
        """
        self._outdated = self._outdated or (not self.strict and (flushed or number != len(self.queues)))
        return self._outdated

    def refresh(self) -> None:
        """Read the names again where they are outdated. One round trip then."""
        if not self._outdated:
            return
        known = self.queues
        self.queues, self._outdated = tuple(self._shard.read_queues()), False
        if self.queues != known and self.listening:
            # The pop that is outstanding knows nothing of the new ones' bells.
            self.close()
        if len(self.queues) > len(known):
            # The bell woke one worker; it tells the next, who waits longest. Who learns nothing new tells nobody.
            self._waker.ring(self._nameless)

    def pass_on(self) -> None:
        """Ring for the work that this worker was about to take, or a heard bell would be lost with it."""
        for queue in self.queues:
            self._waker.ring(self._shard.keys.bell(queue))
        if self._outdated:
            self._waker.ring(self._nameless)
