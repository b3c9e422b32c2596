"""Schedule declarations: what the code of the dispatchers declares. Called by a dispatcher."""

from collections.abc import Sequence

from django_delayq.clock import SECOND_US
from django_delayq.store.client.script import Script
from django_delayq.store.nodes.resp import Part
from django_delayq.store.records import DeclaredBy
from django_delayq.store.schedules.definition import Definition
from django_delayq.store.schedules.schedules import Schedules, schedule_arguments
from django_delayq.store.shard import Shard

_DECLARE = Script("declare_schedules")
#: Most µs since a dispatcher was seen that is alive: it promotes every few seconds, and reports every 15 s.
_SILENT_US = 60 * SECOND_US


class ScheduleDeclarations:
    """API of one shard for one dispatcher."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    def declare_schedules(
        self, definitions: Sequence[Definition], *, by: DeclaredBy, kept: Sequence[bytes], after: DeclaredBy | None
    ) -> list[bytes] | None:
        """Store what the code of a process declares, and delete what it does not declare any more.

        Returns the ids of waiting jobs to cancel. `kept` are ids of schedules that stay as they are. `after` is what
        `declared_by()` returned; None is returned if another process has declared since. Atomic, one round trip,
        O(log n) a schedule. Raises `OtherLayout`.
        """
        layout = self._shard.layout.number
        head: list[Part] = [layout or "", b"" if after is None else after.pack(), by.pack(), b"".join(kept)]
        reply = self._shard.run(_DECLARE, head + schedule_arguments(self._shard, definitions))
        return None if reply == 0 else list(reply)

    def declared_by(self) -> DeclaredBy | None:
        """Return whose declarations apply; None if nobody has declared anything. One round trip."""
        key = self._shard.keys("declared_by")
        return DeclaredBy.unpack(self._shard.execute("GETRANGE", key, 0, DeclaredBy.SIZE - 1))

    def is_dispatcher_alive(self, process: bytes) -> bool:
        """Return whether a dispatcher was seen within the last minute. One round trip."""
        # By Redis's clock: a host whose own clock is ahead would take every dispatcher for gone.
        seen, time = self._shard.execute_all([["ZSCORE", self._shard.keys("dispatchers"), process], ["TIME"]])
        return seen is not None and self._shard.now_us(time) - float(seen) < _SILENT_US

    def declare_and_cancel(
        self, definitions: Sequence[Definition], *, by: DeclaredBy, kept: Sequence[bytes], after: DeclaredBy | None
    ) -> bool:
        """Do what `declare_schedules()` does, then cancel the waiting jobs. Returns False if others declared since."""
        to_cancel = self.declare_schedules(definitions, by=by, kept=kept, after=after)
        Schedules(self._shard).cancel_planted(to_cancel or [])
        return to_cancel is not None
