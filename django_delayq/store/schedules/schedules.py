"""Schedules: store, change and read recurring schedules. Called by any process."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Any, NamedTuple

from django_delayq.clock import SECOND_US, estimated_us
from django_delayq.exceptions import InvalidSchedule
from django_delayq.job.ids import to_text
from django_delayq.job.value import fast_dataclass
from django_delayq.recurring.run import Run, RunOutcome
from django_delayq.recurring.schedule import CatchUp, Overlap
from django_delayq.store.client.resp import Part
from django_delayq.store.client.script import Script
from django_delayq.store.operations.batch import BatchJob
from django_delayq.store.operations.waiting_jobs import WaitingJobs
from django_delayq.store.records import DeclaredBy, ScheduleRecord
from django_delayq.store.schedules.definition import Definition
from django_delayq.store.shard import Shard

_SET, _DECLARE, _DELETE = Script("set_schedules"), Script("declare_schedules"), Script("delete_schedules")
_PAUSE, _RESUME = Script("pause_schedule"), Script("resume_schedule")
#: Most schedules in one call.
BATCH = 250
#: Flags of a record.
PAUSED, DECLARED, UNREADABLE = 1, 2, 4
_NO_JOB = bytes(12)
#: Most µs since a living dispatcher was seen: it promotes every few seconds, and reports every 15 s.
_SILENT_US = 60 * SECOND_US
_TEXT_ID = re.compile(r"([0-9a-f]{16})-(0|[1-9][0-9]{0,3})")


class ScheduleState(StrEnum):
    """What a recurring schedule does now."""

    #: Its next job is planted, or will be.
    WAITING = "waiting"
    RUNNING = "running"
    PAUSED = "paused"
    #: It has no further occurrence.
    ENDED = "ended"
    #: This process, or the dispatcher that planted last, cannot read it.
    UNREADABLE = "unreadable"


@fast_dataclass
class StoredSchedule:
    """A schedule as Redis has it."""

    id: bytes
    shard: int
    #: Not in the repr: it has the arguments of the jobs.
    record: ScheduleRecord = field(repr=False)
    #: None if this process cannot read it; `fault` is the reason.
    definition: Definition | None
    fault: InvalidSchedule | None = None

    @property
    def text_id(self) -> str:
        """Its id as people see it: 16 hexadecimal digits, a hyphen, the shard."""
        return to_text(self.id, self.shard)

    def state(self, now_us: int) -> ScheduleState:
        """Return what it does now (µs since the epoch). A paused one may have a running job, too."""
        if self.definition is None or self.is_unreadable:
            return ScheduleState.UNREADABLE
        if self.is_paused:
            return ScheduleState.PAUSED
        if self.running:
            return ScheduleState.RUNNING
        return ScheduleState.ENDED if self.next_due_us(now_us) is None else ScheduleState.WAITING

    def next_due_us(self, now_us: int) -> int | None:
        """Return when its waiting job is due, or the next one after now; None if there will be none. Moments in µs."""
        if self.definition is None or self.is_paused:
            return None
        schedule, occurrence = self.definition.schedule, self.record.occurrence_us
        if not self.planted:
            following = schedule.next_after(max(occurrence, now_us))
            if following is None:
                return None
            occurrence = following
        return schedule.due_us(occurrence)

    @property
    def is_paused(self) -> bool:
        """Whether no job of it is planted, because of a person or of its failures."""
        return bool(self.record.flags & PAUSED)

    @property
    def is_declared(self) -> bool:
        """Whether it was declared in code."""
        return bool(self.record.flags & DECLARED)

    @property
    def is_unreadable(self) -> bool:
        """Whether the last dispatcher that planted could not read it."""
        return bool(self.record.flags & UNREADABLE)

    @property
    def planted(self) -> bytes | None:
        """The id of the job of its last occurrence, until that begins; None if there is none, or if it is paused."""
        # A pause cancels the job, and its record keeps the id.
        return None if self.record.planted == _NO_JOB or self.is_paused else self.record.planted

    @property
    def running(self) -> bytes | None:
        """The id of its running job, also while that waits for a retry; None if there is none."""
        return None if self.record.running == _NO_JOB else self.record.running

    @property
    def runs(self) -> list[Run]:
        """What became of its last 20 jobs, the latest first; those of later releases are left out."""
        known = {outcome.value: outcome for outcome in RunOutcome}
        return [Run(known[number], took_ms) for number, took_ms in self.record.runs if number in known]


def from_text_id(text: str) -> tuple[bytes, int] | None:
    """Return the id and the shard of a text of `StoredSchedule.text_id`, None if it is not one."""
    found = _TEXT_ID.fullmatch(text)
    return (bytes.fromhex(found[1]), int(found[2])) if found else None


class ScheduleSlice(NamedTuple):
    """Some of the schedules of a shard, in no order."""

    schedules: list[StoredSchedule]
    #: Where the next slice begins; None: this is the last one.
    next_cursor: int | None
    #: How many more are damaged, and left out.
    damaged: int


class Schedules:
    """API of one shard for its recurring schedules."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    def set_schedules(self, definitions: Sequence[Definition]) -> list[bytes]:
        """Store up to 250 schedules, or change those that differ; return the ids of waiting jobs to cancel.

        Atomic, one round trip, O(log n) a schedule. Raises `InvalidSchedule` for one that is
        declared in code.
        """
        reply = self._shard.run(_SET, self._arguments(definitions))
        if isinstance(reply, int):
            raise _declared(definitions[reply - 1].schedule.name)
        return [each for each in reply if each]

    def declare_schedules(
        self, definitions: Sequence[Definition], *, by: DeclaredBy, kept: Sequence[bytes], after: DeclaredBy | None
    ) -> list[bytes] | None:
        """Store what the code of a process declares, and delete what it does not declare any more.

        Returns the ids of waiting jobs to cancel. `kept` are ids of schedules that stay as they are. `after` is what
        `declared_by()` returned; None is returned if another process has declared since. Atomic, one round trip,
        O(log n) a schedule.
        """
        head: list[Part] = [b"" if after is None else after.pack(), by.pack(), b"".join(kept)]
        reply = self._shard.run(_DECLARE, head + self._arguments(definitions))
        return None if reply == 0 else list(reply)

    def declared_by(self) -> DeclaredBy | None:
        """Return whose declarations apply; None if nobody has declared anything. One round trip."""
        key = self._shard.keys("declared_by")
        return DeclaredBy.unpack(self._shard.execute("GETRANGE", key, 0, DeclaredBy.SIZE - 1))

    def is_alive(self, process: bytes) -> bool:
        """Return whether a dispatcher was seen within the last minute. One round trip."""
        seen = self._shard.execute("ZSCORE", self._shard.keys("dispatchers"), process)
        return seen is not None and estimated_us(self._shard.clock) - float(seen) < _SILENT_US

    def _arguments(self, definitions: Sequence[Definition]) -> list[Part]:
        """Return the arguments of a script for schedules to store."""
        args: list[Part] = []
        for definition in definitions:
            schedule = definition.schedule
            overlap = overlap_number(schedule.overlap, schedule.catch_up)
            stored = definition.pack(signer=self._shard.signer, cipher=self._shard.cipher)
            args += (definition.id, overlap, schedule.pause_after or 0, stored)
        return args

    def find(self, ids: Sequence[bytes]) -> list[StoredSchedule | None]:
        """Return the schedules of these ids; None for each that does not exist, or is damaged. One round trip."""
        return [read_schedule(self._shard, id, stored) for id, stored in zip(ids, self.read(ids), strict=True)]

    def read(self, ids: Sequence[bytes]) -> list[bytes | None]:
        """Return the stored form of the schedules of these ids; None for each that does not exist. One round trip."""
        return self._shard.execute("HMGET", self._shard.keys("schedules"), *ids) if ids else []

    def count(self) -> int:
        """Return how many there are. O(1)."""
        return int(self._shard.execute("HLEN", self._shard.keys("schedules")))

    def next_planting_us(self) -> int | None:
        """Return when the next job is planted, µs since the epoch; None if none will be. O(1)."""
        found = self._shard.execute("ZRANGE", self._shard.keys("next_planting"), 0, 0, "WITHSCORES")
        return int(float(found[1])) if found else None

    def scan(self) -> Iterator[StoredSchedule]:
        """Yield all of them in no order, in round trips of some hundred. One that changes meanwhile may come twice."""
        cursor: int | None = 0
        while cursor is not None:
            found = self.slice(cursor, count=500)
            yield from found.schedules
            cursor = found.next_cursor

    def slice(self, cursor: int = 0, *, count: int) -> ScheduleSlice:
        """Return about `count` schedules, from the beginning or from where another slice ended.

        One round trip, O(count). All slices together have each schedule that is there meanwhile, some of them twice.
        """
        end, found = self._shard.execute("HSCAN", self._shard.keys("schedules"), cursor, "COUNT", count)
        read = [read_schedule(self._shard, id, stored) for id, stored in zip(found[::2], found[1::2], strict=True)]
        whole = [schedule for schedule in read if schedule is not None]
        return ScheduleSlice(whole, int(end) or None, len(read) - len(whole))

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

    def set_and_cancel(self, definitions: Sequence[Definition]) -> None:
        """Do what `set_schedules()` does, then cancel the waiting jobs of those that it changed. Two round trips."""
        self.cancel_planted(self.set_schedules(definitions))

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


def read_schedule(shard: Shard, id: bytes, stored: bytes | None) -> StoredSchedule | None:
    """Return the schedule of a field of `schedules`; None if it is missing or damaged."""
    record = ScheduleRecord.unpack(stored)
    if record is None:
        return None
    facts: dict[str, Any] = {"id": id, "shard": shard.index, "record": record}
    try:
        definition = Definition.unpack(
            record.definition, id=id, shard=shard.index, signer=shard.signer, cipher=shard.cipher
        )
    except InvalidSchedule as error:
        return StoredSchedule(**facts, definition=None, fault=error)
    return StoredSchedule(**facts, definition=definition)


def _declared(name: str) -> InvalidSchedule:
    return InvalidSchedule(
        f"the schedule {name!r} is declared in code: change it there, pause it, or take another name"
    )


def overlap_number(overlap: Overlap, catch_up: CatchUp) -> int:
    """Return what scripts know of the overlap of a schedule, as in `_schedules.lua`."""
    if overlap == "wait":
        return 2 if catch_up == "all" else 1
    return {"skip": 0, "stop": 3, "allow": 4}[overlap]
