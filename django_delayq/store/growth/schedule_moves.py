"""Schedule moves: recurring schedules go to the shard of their name, after the number of shards has changed."""

from collections.abc import Sequence

from django_delayq.store.client.script import Script
from django_delayq.store.nodes.resp import Part
from django_delayq.store.operations.batch import BatchJob
from django_delayq.store.operations.waiting_jobs import WaitingJobs
from django_delayq.store.records import ExtrasRecord, ScheduleRecord
from django_delayq.store.shard import Shard

_HAND_OVER, _TAKE_OVER = Script("hand_over_schedule"), Script("take_over_schedule")


class ScheduleMoves:
    """API of one shard for the recurring schedules that leave it or arrive."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    def hand_over_schedule(self, id: bytes, record: ScheduleRecord) -> tuple[bytes, bytes | None, bytes]:
        """Let a schedule leave, if it is as it was read. One round trip, O(log n). See `hand_over_schedule.lua`.

        Returns HANDED_OVER, RUNNING, CHANGED or GONE; the record for the other shard; the id of the job to cancel.
        """
        args: list[Part] = [id, record.version, record.occurrence_us, record.planted]
        word, *more = self._shard.run(_HAND_OVER, args)
        stored, planted = more or (None, b"")
        return word, stored, planted

    def take_over_schedule(self, id: bytes, stored: bytes) -> bool:
        """Store a schedule that another shard has handed over. Returns False if it has come before. One round trip."""
        record = ScheduleRecord.unpack(stored)
        return bool(self._shard.run(_TAKE_OVER, [id, record.version if record else "", stored]))

    def move_all(self) -> int:
        """Move the schedules that belong to other shards; return how many are left, since jobs of them run or wait.

        Safe to repeat, also after a kill in the middle. O(n).
        """
        left, layout = 0, self._shard.layout
        self.complete()
        waiting = self._jobs()
        for pairs in self._shard.scan(self._shard.keys("schedules")):
            for id, stored in pairs:
                record = ScheduleRecord.unpack(stored)
                if record is None or layout.home(id) == self._shard.index:
                    continue
                # Several of its occurrences wait, or one that a person added: it is moved when they have ended.
                if waiting.get(id, set()) - {record.planted} or not self._move(id, record):
                    left += 1
        return left

    def complete(self, ids: Sequence[bytes] | None = None) -> None:
        """Bring the schedules that have left, or some of them, to their shards."""
        key = self._shard.keys("leaving_schedules")
        if ids is None:
            found = self._shard.execute("HGETALL", key)
            leaving = dict(zip(found[::2], found[1::2], strict=True))
        else:
            leaving = dict(zip(ids, self._shard.execute("HMGET", key, *ids), strict=True)) if ids else {}
        for id, stored in leaving.items():
            if stored is not None:
                self._arrive(id, stored)

    def _move(self, id: bytes, record: ScheduleRecord) -> bool:
        word, stored, planted = self.hand_over_schedule(id, record)
        if word == b"HANDED_OVER" and stored is not None:
            if planted:
                # A claim drops it, if this is never sent.
                WaitingJobs(self._shard).cancel([BatchJob(raw_id=planted)])
            self._arrive(id, stored)
        return word in (b"HANDED_OVER", b"GONE")

    def _arrive(self, id: bytes, stored: bytes) -> None:
        home = self._shard.sibling(self._shard.layout.home(id))
        ScheduleMoves(home).take_over_schedule(id, stored)
        self._shard.execute("HDEL", self._shard.keys("leaving_schedules"), id)

    def _jobs(self) -> dict[bytes, set[bytes]]:
        """Return the ids of the jobs of each schedule that have not ended."""
        found = dict[bytes, set[bytes]]()
        for pairs in self._shard.scan(self._shard.keys("job_extras")):
            for raw_id, record in pairs:
                if schedule := ExtrasRecord.unpack(record).schedule:
                    found.setdefault(schedule, set()).add(raw_id)
        return found
