"""Spread: even places in time for dead letters that are requeued together."""

from dataclasses import dataclass

from django_delayq.store.client.script import Script
from django_delayq.store.nodes.resp import Part
from django_delayq.store.shard import Shard

_TAKE_PLACES = Script("take_places")


@dataclass(slots=True, kw_only=True)
class Spread:
    """An even spread of the dead letters that one caller requeues, over the time from the first call on.

    Callers with one name and length share it, also after an interruption and from several processes: together they
    never exceed its rate. It is forgotten when the last of them ends it, or when its time is over.
    """

    name: bytes
    length_us: int
    #: Dead letters of the shard that the caller has not sent yet; `requeue` counts them down.
    left: int
    #: The caller has taken places of it.
    begun: bool = False

    def take_places(self, shard: Shard, count: int) -> list[int]:
        """Take the next places; return their due times (µs). One round trip, O(1) a place."""
        if not count:
            return []
        args: list[Part] = [self.name, self.length_us, self.left, count, int(not self.begun)]
        dues: list[int] = shard.run(_TAKE_PLACES, args)
        self.begun = True
        return dues

    def end(self, shard: Shard) -> None:
        """Forget it, unless other callers take places of it: its free places must not slow a later one. O(1)."""
        if self.begun:
            shard.run(_TAKE_PLACES, [self.name, self.length_us, 0, 0, 0])
            self.begun = False
