"""Schedules: store, change and read recurring schedules. Called by any process."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from django_delayq.exceptions import InvalidSchedule
from django_delayq.recurring.schedule import CatchUp, Overlap
from django_delayq.store.client.reading import Reading
from django_delayq.store.client.script import Script
from django_delayq.store.nodes.resp import Part, encode
from django_delayq.store.operations.batch import BatchJob
from django_delayq.store.operations.waiting_jobs import WaitingJobs
from django_delayq.store.schedules.definition import Definition
from django_delayq.store.schedules.stored_schedule import StoredSchedule, read_schedule
from django_delayq.store.shard import Shard

_SET, _DELETE = Script("set_schedules"), Script("delete_schedules")
_PAUSE, _RESUME = Script("pause_schedule"), Script("resume_schedule")
#: Most schedules in one call.
BATCH = 250


class ScheduleBatch(NamedTuple):
    """Some of the schedules of a shard, in no order."""

    schedules: list[StoredSchedule]
    #: Where the next batch begins; None: this is the last one.
    next_cursor: int | None
    #: How many more are damaged, and left out.
    damaged: int


class Schedules:
    """API of one shard for its recurring schedules."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    def set_schedules(
        self, definitions: Sequence[Definition], *, absent: list[Definition] | None = None, layout: int = 0
    ) -> list[bytes]:
        """Store up to 250 schedules, or change those that differ; return the ids of waiting jobs to cancel.

        With `absent`, only those are changed that exist; it gets the others. `layout` is that of `Enqueue.prepare()`.
        Atomic, one round trip, O(log n) a schedule. Raises `InvalidSchedule` for one that is declared in code.
        """
        head: list[Part] = [layout or "", int(absent is not None)]
        reply = self._shard.run(_SET, head + schedule_arguments(self._shard, definitions))
        if isinstance(reply, int):
            raise _declared(definitions[reply - 1].schedule.name)
        if absent is not None:
            absent += [definition for definition, each in zip(definitions, reply, strict=True) if each == 0]
        return [each for each in reply if each]

    def find(self, ids: Sequence[bytes]) -> list[StoredSchedule | None]:
        """Return the schedules of these ids; None for each that does not exist, or is damaged. One round trip."""
        return self._shard.read(self.read_found(ids)) if ids else []

    def read_found(self, ids: Sequence[bytes]) -> Reading[list[StoredSchedule | None]]:
        """Return the reading of `find()`."""
        [found] = yield [encode("HMGET", self._shard.keys("schedules"), *ids)]
        return [read_schedule(self._shard, id, stored) for id, stored in zip(ids, found, strict=True)]

    def read(self, ids: Sequence[bytes]) -> list[bytes | None]:
        """Return the stored form of the schedules of these ids; None for each that does not exist. One round trip."""
        return self._shard.execute("HMGET", self._shard.keys("schedules"), *ids) if ids else []

    def count(self) -> int:
        """Return how many there are. O(1)."""
        return int(self._shard.execute("HLEN", self._shard.keys("schedules")))

    def next_planting_us(self) -> int | None:
        """Return when the next job is planted, µs since the epoch; None if none will be. O(1)."""
        return self._shard.read(self.read_next_planting())

    def read_next_planting(self) -> Reading[int | None]:
        """Return the reading of `next_planting_us()`."""
        [found] = yield [encode("ZRANGE", self._shard.keys("next_planting"), 0, 0, "WITHSCORES")]
        return int(float(found[1])) if found else None

    def scan(self) -> Iterator[StoredSchedule]:
        """Yield all of them in no order, in round trips of some hundred. One that changes meanwhile may come twice."""
        for batch in self.batches(count=500):
            yield from batch.schedules

    def batches(self, *, count: int) -> Iterator[ScheduleBatch]:
        """Yield all of them in batches of about `count`, one round trip each."""
        cursor: int | None = 0
        while cursor is not None:
            batch = self.scan_batch(cursor, count=count)
            yield batch
            cursor = batch.next_cursor

    def scan_batch(self, cursor: int = 0, *, count: int) -> ScheduleBatch:
        """Return about `count` schedules, from the beginning or from the `next_cursor` of the last batch.

        One round trip, O(count). All batches together have each schedule that exists meanwhile, some of them twice.
        """
        return self._shard.read(self.read_batch(cursor, count=count))

    def read_batch(self, cursor: int = 0, *, count: int) -> Reading[ScheduleBatch]:
        """Return the reading of `scan_batch()`."""
        [[end, found]] = yield [encode("HSCAN", self._shard.keys("schedules"), cursor, "COUNT", count)]
        read = [read_schedule(self._shard, id, stored) for id, stored in zip(found[::2], found[1::2], strict=True)]
        whole = [schedule for schedule in read if schedule is not None]
        return ScheduleBatch(whole, int(end) or None, len(read) - len(whole))

    def pause_schedule(self, id: bytes) -> bytes | None:
        """Pause a schedule; return the id of the waiting job to cancel, b"" for none, None if it was paused already.

        One round trip, O(log n). Raises LookupError if there is no such schedule.
        """
        reply = self._shard.run(_PAUSE, [id])
        if reply == -1:
            raise LookupError(id)
        return None if reply == 0 else reply

    def resume_schedule(self, id: bytes) -> bool:
        """Resume a schedule; returns False if it was not paused. One round trip, O(log n). Raises LookupError."""
        reply = self._shard.run(_RESUME, [id])
        if reply == -1:
            raise LookupError(id)
        return bool(reply)

    def delete_schedules(self, ids: Sequence[bytes]) -> list[bytes | None]:
        """Delete up to 250 schedules; return for each the id of the waiting job to cancel, b"" for none.

        None: there was no such schedule. Atomic, one round trip, O(log n) a schedule. Raises `InvalidSchedule` for one
        that is declared in code.
        """
        replies = self._shard.run(_DELETE, list(ids))
        if isinstance(replies, int):
            stored = self.find([ids[replies - 1]])[0]
            raise _declared(stored.definition.schedule.name if stored and stored.definition else "")
        return [None if reply == 0 else reply for reply in replies]

    def set_and_cancel(
        self, definitions: Sequence[Definition], *, absent: list[Definition] | None = None, layout: int = 0
    ) -> None:
        """Do what `set_schedules()` does, then cancel the waiting jobs of those that it changed. Two round trips."""
        self.cancel_planted(self.set_schedules(definitions, absent=absent, layout=layout))

    def pause_and_cancel(self, id: bytes) -> bool:
        """Do what `pause_schedule()` does, then cancel the waiting job. Returns False if it was paused already."""
        planted = self.pause_schedule(id)
        self.cancel_planted([planted or b""])
        return planted is not None

    def delete_and_cancel(self, ids: Sequence[bytes]) -> int:
        """Do what `delete_schedules()` does, then cancel their waiting jobs; return how many schedules there were."""
        replies = self.delete_schedules(ids)
        self.cancel_planted([reply or b"" for reply in replies])
        return sum(reply is not None for reply in replies)

    def cancel_planted(self, raw_ids: Sequence[bytes]) -> None:
        """Cancel waiting jobs of an earlier version of their schedules; b"" is none.

        A claim drops one that comes first, or whose cancel is never sent.
        """
        if planted := [BatchJob(raw_id=raw_id) for raw_id in raw_ids if raw_id]:
            WaitingJobs(self._shard).cancel(planted)


def _declared(name: str) -> InvalidSchedule:
    return InvalidSchedule(
        f"the schedule {name!r} is declared in the code of the dispatchers: change it there, pause it, or take another "
        f"name"
    )


def overlap_number(overlap: Overlap, catch_up: CatchUp) -> int:
    """Return what scripts know of the overlap of a schedule, as in `_schedules.lua`."""
    if overlap == "wait":
        return 2 if catch_up == "all" else 1
    return {"skip": 0, "stop": 3, "allow": 4}[overlap]


def schedule_arguments(shard: Shard, definitions: Sequence[Definition]) -> list[Part]:
    """Return the arguments of a script for schedules to store."""
    args: list[Part] = []
    for definition in definitions:
        schedule = definition.schedule
        overlap = overlap_number(schedule.overlap, schedule.catch_up)
        stored = definition.pack(signer=shard.signer, cipher=shard.cipher)
        args += (definition.id, overlap, schedule.pause_after or 0, stored)
    return args
