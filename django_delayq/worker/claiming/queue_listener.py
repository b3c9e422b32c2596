"""Queue listener: the queues of one worker on one shard, and their notifications.

A worker of named queues listens to the notifications of these. A worker of all queues listens to the one that every job
sends, `notify`. A worker of a queue filter needs both: those of the queues that it knows, and `notify` for new queues.

It may consume a `notify` of a queue that it does not serve, so it sends each one on to the workers of all queues. They
get it under a key of their own, `notify_sent_on`: two workers of filters cannot send it to each other forever.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from time import monotonic

from django_delayq.conf.queue_filter import QueueFilter
from django_delayq.exceptions import StoreError
from django_delayq.processes.service import readable
from django_delayq.store.client.script_call import ScriptCall
from django_delayq.store.nodes.resp import encode
from django_delayq.store.shard import Shard
from django_delayq.worker.claiming.queue_weights import QueueWeights

#: Seconds for which a worker of a filter leaves `notify` to others after it consumed or sent one. Then jobs of queues
#: that it does not serve wake it ten times a second at most, and it does not consume what it has sent to others.
_PAUSE = 0.1
#: The shortest pop, in seconds: Redis never ends a pop of 0 s.
_SHORTEST_POP = 0.01


class QueueListener:
    """The chosen queues, strictly in order or in turn by weight, or all queues of the shard that the filter matches."""

    def __init__(
        self,
        shard: Shard,
        chosen: tuple[str, ...],
        queue_filter: QueueFilter | None = None,
        *,
        weights: QueueWeights | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._shard = shard
        self._listener = shard.blocking_listener()
        self._chosen = chosen
        self._filter = queue_filter
        self._weights = weights
        self._clock = clock
        self._shared_key = shard.keys("notify")
        self._served = chosen
        #: The names of all queues when they were last read.
        self._names: frozenset[str] = frozenset()
        #: Monotonic moment before which a worker of a filter does not listen to `notify`.
        self._pause_until = 0.0
        #: This worker of a filter consumed a `notify`, or may have lost one, and must send it on.
        self.owes_notification = False
        #: Version of the names in `_served`, and the version in the last reply.
        self._version: bytes | None = None
        self._newest: bytes | None = None
        #: A notification may have been lost, so the worker must ask. Only a reply shows that Redis works again.
        self.wakeup_missed = False

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues to name in the next exchange, in order."""
        return self._weights.order if self._weights else self._served

    @property
    def strict(self) -> bool:
        """Whether jobs are claimed in the order of the queues; otherwise the best rank in any of them comes first."""
        return bool(self._chosen)

    @property
    def serves_all(self) -> bool:
        """Whether it listens to the notification of all queues alone."""
        return not (self._chosen or self._filter)

    @property
    def has_reply(self) -> bool:
        """Whether the reply of the pop has arrived."""
        return bool(self._listener.listening and readable([self._listener.fileno()], 0.0))

    @property
    def notification_keys(self) -> list[str]:
        """The keys to listen to."""
        keys = self._shard.keys
        if self._filter is None:
            return keys.notifications(self._chosen)
        known = list(map(keys.notify, self.queues))
        if self._pause > 0:
            # A pop needs a key. No queue has an empty name, so nothing is pushed to this one.
            return known or [keys.notify("")]
        # Last, because a pop takes the first key that has an element: the other keys lead to a job of this worker.
        return [*known, self._shared_key]

    @property
    def _pause(self) -> float:
        return self._pause_until - self._clock() if self._filter else 0.0

    def listen(self, *, wanted: bool, block: float, behind: ScriptCall | None = None) -> int:
        """Send a blocking pop if it is wanted and none is outstanding; returns the socket to wait on, or -1.

        The pop ends after `block` seconds without a notification. Redis runs the call `behind` it when it ends; the
        reply of the call follows that of the pop.
        """
        if wanted:
            if (pause := self._pause) > 0:
                block = min(block, max(_SHORTEST_POP, pause))
            with self._unless_missed():
                self._listener.listen(self.notification_keys, now=monotonic(), block=block, behind=behind)
        return self._listener.fileno()

    def confirm(self, leases: Sequence[bytes]) -> None:
        """Confirm claims of a blocking request, without waiting for the reply."""
        self._listener.send_without_reply(encode("SREM", self._shard.keys("unconfirmed"), *leases))

    def stop(self) -> None:
        """Stop listening; a notification may be lost."""
        self.close()
        self._record_missed()

    def consume_wakeup(self, *, wanted: bool) -> bool:
        """Read the reply of the pop; returns whether there may be work for this worker.

        The pop may have timed out. A notification that is not wanted is sent on to the other workers.
        """
        with self._unless_missed():
            notification = self._listener.read_notification()
            if self._filter and notification == self._shared_key:
                self.owes_notification, self._pause_until = True, self._clock() + _PAUSE
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
            self._record_missed()
            raise

    def _record_missed(self) -> None:
        self.wakeup_missed = True
        self.owes_notification = self._filter is not None

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
        known, version = self._names, self._newest
        # A name that is added meanwhile is read now, or it changes the version in the next reply.
        names, self._version = self._shard.read_served_queues(), version
        self._names = frozenset(names)
        self._served = tuple(name for name in names if self._filter is None or self._filter.matches(name))
        if not known.issuperset(names):
            if self._filter and self._listener.listening:
                # The outstanding pop does not listen to the new queues, and could consume what is sent to others now.
                self.stop()
            # The notification woke one worker, which may have no free slot, or does not serve the new queue. A worker
            # that reads no new name sends none, so this ends.
            self.owes_notification, self._pause_until = False, self._clock() + _PAUSE
            self._shard.notify(())

    def send_on(self) -> None:
        """Send a `notify` that this worker of a filter consumed on to the workers of all queues."""
        if self.owes_notification:
            # Recorded first: on a full Redis this fails, and what frees memory must come after it.
            self.owes_notification = False
            self._shard.send_on_notification()

    def notify_others(self) -> None:
        """Notify another worker of the work that this one was about to claim; otherwise the notification is lost."""
        if self.owes_notification:
            # This worker does not listen now, so another one of a filter may get it, which knows other queues.
            self.owes_notification = False
            self._shard.notify(())
        if not self._filter:
            self._shard.notify(self._chosen)
        elif self.queues:
            self._shard.notify(self.queues)
