"""Bells: what tells waiting workers of ready jobs. Called by workers."""

from collections.abc import Sequence

from django_delayq.store.client.script import Script
from django_delayq.store.shard import Shard

_NOTIFY = Script("notify")


class Notifier:
    """The bells of one shard; no queues stand for all there are."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    def of(self, queues: Sequence[str]) -> list[str]:
        """Return the keys that a worker of these queues listens to."""
        keys = self._shard.keys
        return [keys.notify(queue) for queue in queues] or [keys("notify")]

    def notify(self, queues: Sequence[str]) -> None:
        """Wake another worker of these queues, where they have ready jobs. One round trip."""
        keys = self._shard.keys
        places = [key for queue in queues for key in (*keys.of_queue(queue)[1:], keys.recovered(queue))]
        self._shard.run(_NOTIFY, [], more_keys=places)
