"""Served: the queues one worker serves on one shard, and their bells."""

import contextlib
from collections.abc import Iterator, Sequence
from time import monotonic

from django_delayq.exceptions import StoreError
from django_delayq.store.client.resp import encode
from django_delayq.store.client.script_call import ScriptCall
from django_delayq.store.shard import Shard


class QueueListener:
    """Named queues in strict order, or all there are."""

    def __init__(self, shard: Shard, chosen: tuple[str, ...]) -> None:
        self._shard = shard
        self._waker = shard.blocking_listener()
        self._chosen = chosen
        self.queues = chosen
        #: Version of the names that were read last, and the version that the last exchange returned.
        self._version: bytes | None = None
        self._newest: bytes | None = None
        #: A bell may have rung unheard: the worker asks. Only an answer shows that Redis is back, too.
        self.wakeup_missed = False

    @property
    def strict(self) -> bool:
        """Whether jobs are taken strictly in the order of the queues; else the best rank of all comes first."""
        return bool(self._chosen)

    @property
    def notification_keys(self) -> list[str]:
        """The keys to listen to."""
        return self._shard.keys.notifications(self._chosen)

    @property
    def listening(self) -> bool:
        """Whether the bells are listened to."""
        return self._waker.listening

    def listen(self, *, wanted: bool, block: float) -> int:
        """Have the bells listened to where that is wanted; returns the socket to wait on, or -1.

        A pop that begins now ends after `block` seconds without a bell.
        """
        if wanted:
            with self._unless_missed():
                self._waker.listen(self.notification_keys, now=monotonic(), block=block)
        return self._waker.fileno()

    def send_behind(self, call: ScriptCall) -> None:
        """Send a script call that Redis runs when the blocking pop ends; its reply follows the reply of the pop."""
        with self._unless_missed():
            self._waker.send_chained(call)

    def confirm(self, leases: Sequence[bytes]) -> None:
        """Confirm claims that came with the bell; sends, and waits for nothing."""
        self._waker.send_without_reply(encode("SREM", self._shard.keys("unconfirmed"), *leases))

    def stop(self) -> None:
        """Listen no longer; a bell may have rung meanwhile."""
        self.close()
        self.wakeup_missed = True

    def consume_wakeup(self, *, wanted: bool) -> bool:
        """Read the bell that rang; returns whether there may be work. One that is not wanted is rung for others."""
        with self._unless_missed():
            bell = self._waker.read_notification()
            if bell and not wanted:
                self.notify_others()
        return bell is not None and wanted

    def close(self) -> None:
        """Let go of the connection."""
        self._waker.close()

    @contextlib.contextmanager
    def _unless_missed(self) -> Iterator[None]:
        try:
            yield
        except StoreError:
            self.wakeup_missed = True
            raise

    def compare(self, version: bytes) -> bool:
        """Compare with the version that an exchange returned; true where this worker serves all, and reads others."""
        self._newest = version
        return self._outdated

    @property
    def _outdated(self) -> bool:
        return not self.strict and self._newest != self._version

    def refresh(self) -> None:
        """Read the names again where they are outdated. One round trip then, two where there are new ones."""
        if not self._outdated:
            return
        known, version = set(self.queues), self._newest
        # Names that come in between are read now or change the version that the next exchange returns.
        self.queues, self._version = tuple(self._shard.read_served_queues()), version
        if not known.issuperset(self.queues):
            # The bell woke one worker, which may have no slot left; it tells the next. Who learns nothing tells nobody.
            self.notify_others()

    def notify_others(self) -> None:
        """Ring for the work that this worker was about to take, or a heard bell would be lost with it."""
        self._shard.notify(self._chosen)
