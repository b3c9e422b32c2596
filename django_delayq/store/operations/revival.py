"""Revival: dead letters of another shard, whose keys, tenants or limits belong to this one. Called by `DeadLetters`."""

from collections.abc import Sequence

from django_delayq.store.client.script import Script
from django_delayq.store.nodes.resp import Part
from django_delayq.store.shard import Shard

_REVIVE = Script("revive")


class Revival:
    """API of one shard that takes dead letters of others."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._head_start_ms = shard.config.dispatcher.due_first_us // 1_000

    def revive(self, *, queue: str, args: Sequence[Part], left: bytes, layout: int) -> tuple[bytes, int]:
        """Store a dead letter as a waiting job; return REQUEUED, HELD, GO_ON or GONE, and its due time (µs).

        `args` are from its member on what `revive.lua` takes. `left` and `layout` are those of `Enqueue.prepare()`.
        Atomic, one round trip, O(log n). Safe to repeat. Raises `OtherLayout`.
        """
        word, due_us = self._shard.run(_REVIVE, [self._head_start_ms, layout or "", left, *args], queue=queue)
        return word, due_us
