"""Schedule places: in which shard a recurring schedule is, while some are still in shards of an older layout."""

from collections.abc import Callable, Sequence

from django_delayq.exceptions import OtherLayout, StoreUnavailable
from django_delayq.store.growth.layouts import Layouts
from django_delayq.store.growth.schedule_moves import ScheduleMoves
from django_delayq.store.schedules.definition import Definition
from django_delayq.store.schedules.schedules import Schedules
from django_delayq.store.schedules.stored_schedule import StoredSchedule
from django_delayq.store.shard import TRIES, Shard


class SchedulePlaces:
    """The recurring schedules of one store."""

    def __init__(self, layouts: Layouts, shard: Callable[[int], Shard]) -> None:
        self._layouts, self._shard = layouts, shard

    def shards(self, ids: Sequence[bytes]) -> list[int]:
        """Return the shard of each schedule: an old one as long as it is there. No round trip, mostly."""
        self._layouts.learn()
        layout = self._layouts.layout
        shards = {id: layout.home(id) for id in ids}
        asked = dict[int, list[bytes]]()
        for id in ids if not layout.is_finished else ():
            for place in layout.places(id)[:-1]:
                asked.setdefault(place.shard, []).append(id)
        for index, some in asked.items():
            shard = self._shard(index)
            # One that is on its way arrives first.
            ScheduleMoves(shard).complete(some)
            there = Schedules(shard).read(some)
            shards |= {id: index for id, stored in zip(some, there, strict=True) if stored is not None}
        return [shards[id] for id in ids]

    def shard(self, stored: StoredSchedule) -> int:
        """Return the shard of a schedule that was read: it may have moved since. No round trip, mostly."""
        # Without a change it is where it was, even if somebody forced another number of shards.
        return self.shards([stored.id])[0] if self._layouts.layout.has_changed else stored.shard

    def set(self, definitions: Sequence[Definition]) -> None:
        """Store up to 250 schedules where they are, or else where they belong; cancel the jobs of those that change.

        Two round trips a shard. Raises `InvalidSchedule` for one that is declared in code.
        """
        left = list(definitions)
        for _ in range(TRIES):
            layout, by_place = self._layouts.layout, dict[tuple[int, bool], list[Definition]]()
            for each, shard in zip(left, self.shards([each.id for each in left]), strict=True):
                by_place.setdefault((shard, layout.home(each.id) == shard), []).append(each)
            left = []
            for (shard, is_home), some in by_place.items():
                try:
                    # It may leave an old shard at any time, and must not come back.
                    absent = None if is_home else left
                    Schedules(self._shard(shard)).set_and_cancel(some, absent=absent, layout=layout.number)
                except OtherLayout as error:
                    self._layouts.follow(error, shard)
                    left += some
            if not left:
                return
        raise StoreUnavailable(f"the number of shards changed {TRIES} times meanwhile", maybe_accepted=False)
