"""Queue listener: the queues of one worker on one shard, and their notifications."""

import contextlib
from collections.abc import Iterator, Sequence
from time import monotonic

from django_delayq.exceptions import StoreError
from django_delayq.store.client.resp import encode
from django_delayq.store.client.script_call import ScriptCall
from django_delayq.store.shard import Shard


class QueueListener:
    """The chosen queues in strict order, or all queues of the shard."""

    def __init__(self, shard: Shard, chosen: tuple[str, ...]) -> None:
        self._shard = shard
        self._listener = shard.blocking_listener()
        self._chosen = chosen
        self.queues = chosen
        #: Version of the names in `queues`, and the version in the last reply.
        self._version: bytes | None = None
        self._newest: bytes | None = None
        #: A notification may have been lost, so the worker must ask. Only a reply shows that Redis works again.
        self.wakeup_missed = False

    @property
    def strict(self) -> bool:
        """Whether jobs are claimed in the order of the queues; otherwise the best rank of all queues comes first."""
        return bool(self._chosen)

    @property
    def notification_keys(self) -> list[str]:
        """The keys to listen to."""
        return self._shard.keys.notifications(self._chosen)

    def listen(self, *, wanted: bool, block: float) -> int:
        """Send a blocking pop if it is wanted and none is outstanding; returns the socket to wait on, or -1.

        The pop ends after `block` seconds without a notification.
        """
        if wanted:
            with self._unless_missed():
                self._listener.listen(self.notification_keys, now=monotonic(), block=block)
        return self._listener.fileno()

    def send_behind(self, call: ScriptCall) -> None:
        """Send a script call that Redis runs when the blocking pop ends; its reply follows the reply of the pop."""
        with self._unless_missed():
            self._listener.send_chained(call)

    def confirm(self, leases: Sequence[bytes]) -> None:
        """Confirm claims of a blocking request, without waiting for the reply."""
        self._listener.send_without_reply(encode("SREM", self._shard.keys("unconfirmed"), *leases))

    def stop(self) -> None:
        """Stop listening; a notification may be lost."""
        self.close()
        self.wakeup_missed = True

    def consume_wakeup(self, *, wanted: bool) -> bool:
        """Read the reply of the pop; returns whether there may be work for this worker.

        The pop may have timed out. A notification that is not wanted is sent on to the other workers.
        """
        with self._unless_missed():
            notification = self._listener.read_notification()
            if notification and not wanted:
                self.notify_others()
        return notification is not None and wanted

    def close(self) -> None:
        """Close the connection."""
        self._listener.close()

    @contextlib.contextmanager
    def _unless_missed(self) -> Iterator[None]:
        try:
            yield
        except StoreError:
            self.wakeup_missed = True
            raise

    def mark_if_stale(self, version: bytes) -> bool:
        """Record the version of the queue names in a reply; returns whether `queues` is older than that."""
        self._newest = version
        return self._is_stale

    @property
    def _is_stale(self) -> bool:
        return not self.strict and self._newest != self._version

    def refresh(self) -> None:
        """Read the queue names again if they are stale: one round trip, two if a name is new."""
        if not self._is_stale:
            return
        known, version = set(self.queues), self._newest
        # A name that is added meanwhile is read now, or it changes the version in the next reply.
        self.queues, self._version = tuple(self._shard.read_served_queues()), version
        if not known.issuperset(self.queues):
            # The notification woke one worker, which may have no free slot. A worker that reads no new name sends none.
            self.notify_others()

    def notify_others(self) -> None:
        """Notify another worker of the work that this one was about to claim; otherwise the notification is lost."""
        self._shard.notify(self._chosen)
