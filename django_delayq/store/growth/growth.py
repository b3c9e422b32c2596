"""Growth: the steps by which a store gets another number of shards while everything runs. Each is safe to repeat."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain

from django_delayq.exceptions import OtherLayout, StoreUnavailable
from django_delayq.job.layout import Layout
from django_delayq.store.digests import routings_of
from django_delayq.store.growth.layouts import Layouts
from django_delayq.store.growth.lingering import Lingering
from django_delayq.store.growth.schedule_moves import ScheduleMoves
from django_delayq.store.records import ExtrasRecord
from django_delayq.store.shard import TRIES, Shard

#: Bytes of a tenant's entry in `tenants` that has its pause: hash of the queue and digest.
_TENANT = 14
#: What a shard that is dropped must not hold.
_HELD = {"jobs": "jobs", "dead_bodies": "failed jobs", "schedules": "recurring schedules", "unique_keys": "keys"}


class Growth:
    """The shards of one store, and its layout."""

    def __init__(self, layouts: Layouts, shard: Callable[[int], Shard]) -> None:
        self._layouts, self._shard = layouts, shard

    @property
    def layout(self) -> Layout:
        """The layout as this process knows it."""
        return self._layouts.layout

    def announce(self, shards: int) -> None:
        """Let processes serve so many shards; the new ones get no jobs yet."""
        self._change(lambda layout: layout if layout.served >= shards else layout.announcing(shards))

    def take_back(self) -> None:
        """Forget the shards that are announced; those that have jobs are served on."""
        self._change(lambda layout: layout.announcing(0) if layout.coming else layout)

    def spread_over(self, shards: int) -> None:
        """Spread what is new over so many shards from now on."""
        self._change(lambda layout: layout if layout.shards == shards else layout.spread_over(shards))

    def copy_rules(self) -> None:
        """Make the rules of limits and the pauses of the shards that had no jobs before those of shard 0. O(n).

        Somebody may pause or resume meanwhile, which a second call makes right.
        """
        layout = self.layout
        old = layout.shards if layout.is_finished else layout.older[-1]
        for index in range(old, layout.served):
            for noun in ("limit_rules", "paused_tasks", "tenants", "paused", "pause_ends"):
                wanted, found = self._rules(0, noun, of=index), self._rules(index, noun, of=index)
                shard = self._shard(index)
                if added := [(name, value) for name, value in wanted.items() if found.get(name) != value]:
                    pairs = [pair[::-1] for pair in added] if noun == "pause_ends" else added
                    shard.execute(
                        "ZADD" if noun == "pause_ends" else "HSET", shard.keys(noun), *chain.from_iterable(pairs)
                    )
                if removed := found.keys() - wanted.keys():
                    shard.execute("ZREM" if noun == "pause_ends" else "HDEL", shard.keys(noun), *removed)

    def count(self) -> dict[int, Counter[str]]:
        """Count what is left of older numbers of shards, in each shard that has some: kind of thing -> how many.

        O(n), in batches. Raises `StoreUnavailable` if another process counts.
        """
        left = {index: self._count(index) for index in range(self.layout.served)}
        for index, found in left.items():
            found["recurring schedule"] = sum(
                self.layout.home(id) != index for pairs in self._scan(index, "schedules") for id, _ in pairs
            ) + int(self._shard(index).execute("HLEN", self._shard(index).keys("leaving_schedules")))
        for index in self.layout.draining:
            # It will be dropped: nothing may be in it.
            left[index].update(self.held(index))
        return {index: +found for index, found in left.items() if found.total()}

    def routings(self, index: int) -> Iterator[list[bytes]]:
        """Yield the routing values of each job of a shard that has some. O(n), in batches."""
        for pairs in self._scan(index, "job_extras"):
            yield from (values for _, record in pairs if (values := routings_of(ExtrasRecord.unpack(record))[1]))

    def held(self, index: int) -> dict[str, int]:
        """Return what a shard holds: kind of thing -> how many. One round trip."""
        shard = self._shard(index)
        sizes = shard.execute_all([["HLEN", shard.keys(noun)] for noun in _HELD])
        return {name: size for name, size in zip(_HELD.values(), sizes, strict=True) if size}

    def move_schedules(self) -> int:
        """Move recurring schedules to their shards; return how many are left, since jobs of them run or wait. O(n).

        While some are left, dispatchers declare none.
        """
        left = sum(ScheduleMoves(self._shard(index)).move_all() for index in range(self.layout.served))
        if not left:
            self._change(lambda layout: layout.with_schedules_moved() if layout.moves_schedules else layout)
        return left

    def finish(self) -> bool:
        """Forget the older numbers of shards, after `count()` has found that nothing is left of them.

        Returns False if they were forgotten before.
        """
        return self._change(lambda layout: layout if layout.is_finished else layout.finished())

    def _count(self, index: int) -> Counter[str]:
        """Count what lingers in a shard; follow a layout that it does not know."""
        for _ in range(TRIES):
            try:
                if (found := Lingering(self._shard(index)).count()) is not None:
                    return found
            except OtherLayout as error:
                self._layouts.follow(error, index)
        raise StoreUnavailable(f"another process counts what is left in shard {index}; try again in a minute")

    def _change(self, change: Callable[[Layout], Layout]) -> bool:
        """Store the next layout, unless the change leaves the present one as it is; return whether it did not.

        Raises `StoreUnavailable` if others change the layout each time.
        """
        for _ in range(TRIES):
            self._layouts.read()
            wanted = change(self.layout)
            if wanted == self.layout:
                # Others may not know it yet, after a kill.
                self._layouts.store(wanted)
                return False
            if self._layouts.store(wanted):
                return True
        raise StoreUnavailable(f"others changed the layout {TRIES} times meanwhile")

    def _scan(self, index: int, noun: str, *, command: str = "HSCAN") -> Iterator[list[tuple[bytes, bytes]]]:
        shard = self._shard(index)
        return shard.scan(shard.keys(noun), command=command)

    def _rules(self, index: int, noun: str, *, of: int) -> dict[bytes, bytes]:
        """Return the rules or pauses that a shard has under a noun, as shard `of` names them."""
        command = "ZSCAN" if noun == "pause_ends" else "HSCAN"
        pairs = chain.from_iterable(self._scan(index, noun, command=command))
        if noun == "tenants":
            # The others are the turns of a shard.
            return {name: value for name, value in pairs if len(name) == _TENANT and b"\xff" in value}
        # A queue is named by a key of its shard.
        return {self._here(name, of) if noun == "paused" else name: value for name, value in pairs}

    def _here(self, key: bytes, index: int) -> bytes:
        """Return the key of the same queue in another shard than 0."""
        before, here = (self._shard(each).keys("ready:").encode() for each in (0, index))
        return here + key[len(before) :] if key.startswith(before) else key
