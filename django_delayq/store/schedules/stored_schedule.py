"""Stored schedule: a recurring schedule as Redis has it, and what it does now."""

import re
from dataclasses import field
from enum import StrEnum
from typing import Any

from django_delayq.exceptions import InvalidSchedule
from django_delayq.job.ids import to_text
from django_delayq.job.value import fast_dataclass
from django_delayq.recurring.run import Run, RunOutcome
from django_delayq.store.records import ScheduleRecord
from django_delayq.store.schedules.definition import Definition
from django_delayq.store.shard import Shard

#: Flags of a record.
PAUSED, DECLARED, UNREADABLE = 1, 2, 4
_NO_JOB = bytes(12)
#: By the number that is stored.
_RUN_OUTCOMES = {outcome.value: outcome for outcome in RunOutcome}
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

    @property
    def full_name(self) -> str:
        """Its name and its task, for messages; its id if this process cannot read it."""
        found = self.definition
        return f"{found.schedule.name!r} of {found.job.task}" if found else self.text_id

    @property
    def sort_key(self) -> tuple[str, str, bytes]:
        """The order of lists: by task and name; those that this process cannot read come first."""
        found = self.definition
        return (found.job.task, found.schedule.name, self.id) if found else ("", "", self.id)

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
    def waiting_id(self) -> str | None:
        """That id as people see it."""
        return None if self.planted is None else to_text(self.planted, self.shard)

    @property
    def running(self) -> bytes | None:
        """The id of its running job, also while that waits for a retry; None if there is none."""
        return None if self.record.running == _NO_JOB else self.record.running

    @property
    def running_id(self) -> str | None:
        """That id as people see it."""
        return None if self.running is None else to_text(self.running, self.shard)

    @property
    def runs(self) -> list[Run]:
        """What became of its last 20 jobs, the latest first; those of later releases are left out."""
        return [Run(_RUN_OUTCOMES[number], took_ms) for number, took_ms in self.record.runs if number in _RUN_OUTCOMES]


def from_text_id(text: str) -> tuple[bytes, int] | None:
    """Return the id and the shard of a text of `StoredSchedule.text_id`, None if it is not one."""
    found = _TEXT_ID.fullmatch(text)
    return (bytes.fromhex(found[1]), int(found[2])) if found else None


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
