"""Schedules: store, change and read recurring schedules. Called by any process."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from django_delayq.clock import SECOND_US, estimated_us
from django_delayq.exceptions import InvalidSchedule
from django_delayq.recurring.run import Run, RunOutcome
from django_delayq.recurring.schedule import CatchUp, Overlap
from django_delayq.store.client.resp import Part
from django_delayq.store.client.script import Script
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


@dataclass(frozen=True, slots=True, kw_only=True)
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
        """The id of the job of its last occurrence, until that begins; None if there is none."""
        return None if self.record.planted == _NO_JOB else self.record.planted

    @property
    def running(self) -> bytes | None:
        """The id of its running job, also while that waits for a retry; None if there is none."""
        return None if self.record.running == _NO_JOB else self.record.running

    @property
    def runs(self) -> list[Run]:
        """What became of its last 20 jobs, the latest first; those of later releases are left out."""
        known = {outcome.value: outcome for outcome in RunOutcome}
        return [Run(known[number], took_ms) for number, took_ms in self.record.outcomes if number in known]


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
        if not ids:
            return []
        found = self._shard.execute("HMGET", self._shard.keys("schedules"), *ids)
        return [self._read(id, stored) for id, stored in zip(ids, found, strict=True)]

    def count(self) -> int:
        """Return how many there are. O(1)."""
        return int(self._shard.execute("HLEN", self._shard.keys("schedules")))

    def next_planting_us(self) -> int | None:
        """Return when the next job is planted, µs since the epoch; None if none will be. O(1)."""
        found = self._shard.execute("ZRANGE", self._shard.keys("next_planting"), 0, 0, "WITHSCORES")
        return int(float(found[1])) if found else None

    def scan(self) -> Iterator[StoredSchedule]:
        """Yield all of them in no order, in round trips of some hundred. One that changes meanwhile may come twice."""
        key, cursor = self._shard.keys("schedules"), b"0"
        while True:
            cursor, found = self._shard.execute("HSCAN", key, cursor, "COUNT", 500)
            for id, stored in zip(found[::2], found[1::2], strict=True):
                if schedule := self._read(id, stored):
                    yield schedule
            if cursor == b"0":
                return

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

    def _read(self, id: bytes, stored: bytes | None) -> StoredSchedule | None:
        return read_schedule(self._shard, id, stored)


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
