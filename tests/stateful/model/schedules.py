"""Schedules in plain Python: recurring schedules, what changes them, and what becomes of their jobs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django_delayq.conf.limit_rules import LimitRule
from django_delayq.job.job import Flag
from django_delayq.job.unsent import UnsentJob
from django_delayq.store.schedules.definition import Definition
from tests.stateful.model.limits import Limited, Obstacle, Room
from tests.stateful.model.model_state import SECOND_US
from tests.stateful.model.plans import Rhythm
from tests.stateful.model.values import ModelJob, Place

#: Before the id of a schedule: its jobs that wait until another one has ended.
SCHEDULE_LIMIT = b"plan"
VERSIONS = 4_294_967_295
#: How long the code of a job may go on that the next one stops.
GRACE_US = 10 * SECOND_US
#: What is kept of a job that has ended, by how it ended; and of how many.
OUTCOMES = {"done": 1, "dead": 2, "cancelled": 3, "expired": 4, "dropped": 5}
KEPT = 20


class IsDeclared(Exception):
    """A schedule of a call is declared in code: its number."""


@dataclass
class ModelSchedule:
    """A recurring schedule."""

    definition: Definition
    #: The definition as it is stored.
    stored: bytes
    is_declared: bool = False
    is_paused: bool = False
    #: The dispatcher that planted last could not read it.
    is_unreadable: bool = False
    failures: int = 0
    #: The moment of its last change (ms), or a later one if several changes came within a millisecond; 0: new.
    changed_ms: int = 0
    #: The last occurrence with a job, or the moment after which the next one comes (µs).
    last_us: int = 0
    planted: bytes | None = None
    running: bytes | None = None
    last_start_us: int = 0
    last_end_us: int = 0
    #: What became of its jobs, the latest first, and for how long (µs) each ran.
    outcomes: list[tuple[int, int]] = field(default_factory=list)
    #: When a dispatcher plants again (µs), and whether the last promotion returned it.
    next_us: int | None = None
    is_named: bool = False

    @property
    def rhythm(self) -> Rhythm:
        return Rhythm(self.definition.schedule)

    @property
    def version(self) -> int:
        return self.changed_ms % VERSIONS + 1

    @property
    def overlap(self) -> str:
        return self.definition.schedule.overlap

    @property
    def all_wait(self) -> bool:
        return self.overlap == "wait" and self.definition.schedule.catch_up == "all"

    def change(self, now_us: int) -> None:
        """Let no job that waits begin any more."""
        self.changed_ms = max(now_us // 1_000, self.changed_ms + 1)

    def plan_at(self, moment_us: int | None) -> None:
        self.next_us, self.is_named = moment_us, False


@dataclass
class Schedules(Limited):
    """The state with the transitions of recurring schedules."""

    schedules: dict[bytes, ModelSchedule] = field(default_factory=dict)
    #: Who declared last, and the ids of what it declared.
    declared_by: bytes = b""
    declared: list[bytes] = field(default_factory=list)
    #: Of the exchange that is under way: the job of each schedule that it claims, and schedules of which it parks one.
    begun: dict[bytes, bytes] = field(default_factory=dict)
    parking: set[bytes] = field(default_factory=set)
    #: Jobs of schedules that ended in the call that is under way, how, and for how long (µs) they ran.
    ended_runs: list[tuple[ModelJob, str, int]] = field(default_factory=list)

    # -- people and code

    def set_schedules(self, definitions: Sequence[tuple[Definition, bytes]]) -> list[bytes]:
        """Store schedules, or change those that differ. Return the ids of jobs that nobody needs any more."""
        for number, (definition, _) in enumerate(definitions):
            if (known := self.schedules.get(definition.id)) and known.is_declared:
                raise IsDeclared(number)
        changed = [self._set(definition, stored, is_declared=False) for definition, stored in definitions]
        return [raw_id for raw_id in changed if raw_id]

    def declare(
        self, definitions: Sequence[tuple[Definition, bytes]], *, by: bytes, kept: Sequence[bytes], after: bytes
    ) -> set[bytes] | None:
        """Store what a process declares, and delete what it does not, if nobody has declared since `after`."""
        if self.declared_by != after:
            return None
        changed = [self._set(definition, stored, is_declared=True) for definition, stored in definitions]
        declared = [*kept, *(definition.id for definition, _ in definitions)]
        for id in self.declared:
            if id not in declared and (known := self.schedules.get(id)) and known.is_declared:
                changed.append(self.schedules.pop(id).planted)
        self.declared_by, self.declared = by, declared
        return {raw_id for raw_id in changed if raw_id}

    def pause_schedule(self, id: bytes) -> bytes | None:
        """Pause a schedule. Return its waiting job, b"" for none; None if it was paused already."""
        schedule = self.schedules[id]
        if schedule.is_paused:
            return None
        self._pause(schedule)
        return schedule.planted or b""

    def resume_schedule(self, id: bytes) -> bool:
        """Go on with a paused schedule, after this moment."""
        schedule = self.schedules[id]
        if not schedule.is_paused:
            return False
        schedule.is_paused, schedule.failures = False, 0
        self._begin_version(schedule, self.now)
        return True

    def delete_schedules(self, ids: Sequence[bytes]) -> list[bytes | None]:
        """Delete schedules. Return their waiting jobs, b"" for none; None for what was no schedule."""
        for number, id in enumerate(ids):
            if (known := self.schedules.get(id)) and known.is_declared:
                raise IsDeclared(number)
        gone = [self.schedules.pop(id, None) for id in ids]
        return [None if schedule is None else schedule.planted or b"" for schedule in gone]

    # -- dispatchers

    def schedules_to_plant(self) -> set[bytes]:
        """Return the schedules whose next jobs are to be planted."""
        return {id for id, each in self.schedules.items() if each.next_us is not None and each.next_us <= self.now}

    def name_schedules(self) -> None:
        """Return these to a dispatcher: it plants them."""
        for id in self.schedules_to_plant():
            self.schedules[id].is_named = True

    def plan(self, id: bytes) -> tuple[list[int], int | None]:
        """Return the occurrences of a schedule that get a job now, and when the next ones do."""
        schedule = self.schedules[id]
        return schedule.rhythm.plan(
            schedule.last_us,
            schedule.last_start_us,
            is_waiting=schedule.planted is not None,
            is_running=schedule.running is not None,
            now_us=self.now,
        )

    def plant(
        self,
        id: bytes,
        *,
        read: tuple[int, int],
        jobs: Sequence[tuple[int, UnsentJob]],
        next_us: int | None,
        is_unreadable: bool = False,
    ) -> bool:
        """Store the jobs of these occurrences, if version and last occurrence are those that were `read`."""
        schedule = self.schedules.get(id)
        if schedule is None or schedule.is_paused or (schedule.version, schedule.last_us) != read:
            return False
        schedule.is_unreadable = is_unreadable
        schedule.plan_at(next_us)
        for occurrence, draft in jobs:
            assert draft.due_us == schedule.rhythm.due_us(occurrence)
            job = self._plant_job(draft)
            job.version = schedule.version
            schedule.last_us, schedule.planted = occurrence, job.raw_id
        if not jobs and schedule.planted and not self._exists(schedule.planted):
            schedule.planted = None
            schedule.plan_at(self.now)
        elif not jobs and next_us and not is_unreadable and not schedule.planted and not schedule.running:
            # The job for which the plan waits has ended meanwhile.
            schedule.plan_at(self.now)
        return True

    def _plant_job(self, draft: UnsentJob) -> ModelJob:
        assert draft.due_us is not None
        job = ModelJob.of(draft)
        job.use(self.options_of(job.queue))
        self.jobs[job.raw_id] = job
        self._count_enqueued(draft.job)
        self._wait(job, draft.due_us)
        if job.place is Place.READY:
            job.score = self.rank(job, draft.due_us)
        if job.expires_us is not None and job.expiry and job.expiry.span_us is not None:
            job.expires_us = draft.due_us + job.expiry.span_us
        self._follow()
        return job

    # -- workers

    def _in_the_way(self, job: ModelJob) -> Obstacle | None:
        if job.schedule is None or self.limits.paused_us is not None:
            return super()._in_the_way(job)
        if obstacle := self._other_run(job, job.schedule):
            return obstacle
        obstacle = super()._in_the_way(job)
        if obstacle is None:
            self.begun[job.schedule] = job.raw_id
        return obstacle

    def _other_run(self, job: ModelJob, id: bytes) -> Obstacle | None:
        """Return what its schedule has against a job: it has changed, or another job runs or goes first."""
        schedule, limit = self.schedules.get(id), SCHEDULE_LIMIT + id
        one_waits = id in self.parking or bool(self._parked(limit))
        dropped = Obstacle(limit, drops=True)
        if schedule and schedule.running == job.raw_id:
            return dropped if schedule.overlap == "stop" and one_waits else None
        if job.has_begun:
            return None
        if job.version and (schedule is None or job.version != schedule.version):
            return dropped
        if schedule is None or schedule.overlap == "allow":
            return None
        running = self.begun.get(id) or schedule.running
        if running and schedule.overlap == "stop":
            self._ask_to_end(self.jobs[running])
        if running and (schedule.overlap == "skip" or one_waits and not schedule.all_wait):
            return dropped
        if not running and not self._is_behind_others(job, limit):
            return None
        self.parking.add(id)
        return Obstacle(limit)

    def _ask_to_end(self, job: ModelJob) -> None:
        if job.place is Place.CLAIMED and job.stop_by is None:
            job.stop_by = self.now + GRACE_US

    def _hold(self, jobs: Sequence[ModelJob], *, ordered: bool = False) -> None:
        super()._hold(jobs, ordered=ordered)
        for job in jobs:
            if job.schedule is None or job.is_dropped:
                continue
            job.has_begun = True
            if schedule := self.schedules.get(job.schedule):
                schedule.running, schedule.last_start_us = job.raw_id, _second(self.now)
                if schedule.planted == job.raw_id:
                    schedule.planted = None
        self.begun.clear()
        self.parking.clear()

    def _room(self, limit: bytes) -> Room:
        if not limit.startswith(SCHEDULE_LIMIT):
            return super()._room(limit)
        schedule = self.schedules.get(limit[4:])
        runs = schedule is not None and schedule.overlap != "allow" and schedule.running is not None
        return Room(LimitRule(max_running=1), self.now, int(runs))

    # -- the ends of jobs

    def _end(self, job: ModelJob, how: str, *, keep: bool = False) -> None:
        super()._end(job, how, keep=keep)
        self._run_ended(job, how)

    def _run_ended(self, job: ModelJob, how: str) -> None:
        """Note that a job of a schedule ended; a dead letter is none of its schedule any more."""
        if job.schedule is not None:
            ran = job.place in (Place.CLAIMED, Place.DEAD)
            self.ended_runs.append((job, how, self.now - job.claimed_us if ran else 0))

    def _record_runs(self) -> None:
        """Keep what became of the jobs of a call: an exchange has the dead ones before those with a kept result."""
        for job, how, took_us in sorted(self.ended_runs, key=_order_of_settling):
            assert job.schedule is not None
            if schedule := self.schedules.get(job.schedule):
                self._record_run(schedule, job, how, took_us)
            if how == "dead":
                job.schedule, job.version, job.has_begun = None, 0, False
        self.ended_runs.clear()

    def _record_run(self, schedule: ModelSchedule, job: ModelJob, how: str, took_us: int) -> None:
        was_running = schedule.running == job.raw_id
        if not was_running and job.version not in (0, schedule.version):
            return
        schedule.outcomes = [(OUTCOMES[how], took_us), *schedule.outcomes][:KEPT]
        schedule.last_end_us = _second(self.now)
        if how == "done":
            schedule.failures = 0
        if how == "dead":
            schedule.failures += 1
            most = schedule.definition.schedule.pause_after
            if most and schedule.failures >= most and not schedule.is_paused:
                self._pause(schedule)
        if schedule.planted == job.raw_id:
            schedule.planted = None
        if was_running:
            schedule.running = None
            self._open(SCHEDULE_LIMIT + schedule.definition.id, self.now)
        if how == "expired" and not schedule.is_paused:
            schedule.plan_at(self.now)

    # -- what several of them do

    def _set(self, definition: Definition, stored: bytes, *, is_declared: bool) -> bytes | None:
        """Store a schedule if it differs. Return its waiting job, whose occurrence is planted again if it has come."""
        schedule = self.schedules.get(definition.id)
        if schedule and (schedule.stored, schedule.is_declared) == (stored, is_declared):
            return None
        schedule = self.schedules.setdefault(definition.id, ModelSchedule(definition, stored))
        waiting = schedule.planted if schedule.planted and self._exists(schedule.planted) else None
        schedule.definition, schedule.stored, schedule.is_declared = definition, stored, is_declared
        schedule.is_unreadable = False
        came = waiting and schedule.last_us <= self.now
        self._begin_version(schedule, schedule.last_us - 1 if came else self.now)
        return waiting

    def _begin_version(self, schedule: ModelSchedule, last_us: int) -> None:
        schedule.change(self.now)
        schedule.last_us, schedule.planted = _second(last_us), None
        if not schedule.is_paused:
            schedule.plan_at(self.now)

    def _pause(self, schedule: ModelSchedule) -> None:
        schedule.change(self.now)
        schedule.is_paused = True
        schedule.plan_at(None)

    def _exists(self, raw_id: bytes) -> bool:
        return raw_id in self.jobs and self.jobs[raw_id].place is not Place.DEAD


def _second(us: int) -> int:
    return us // SECOND_US * SECOND_US


def _order_of_settling(ended: tuple[ModelJob, str, int]) -> Any:
    job, how, _ = ended
    return 1 if how == "dead" else 2 if job.has(Flag.KEEPS_RESULT) else 0


def record_of(schedule: ModelSchedule) -> bytes:
    """Return the record of a schedule; the layout is in `_schedules.lua`."""
    options = schedule.definition.schedule
    flags = schedule.is_paused + 2 * schedule.is_declared + 4 * schedule.is_unreadable + 8 * bool(schedule.running)
    overlap = 2 if schedule.all_wait else ("skip", "wait", "", "stop", "allow").index(options.overlap)
    numbers = bytes((flags, overlap, options.pause_after or 0, schedule.failures)) + schedule.version.to_bytes(4)
    moments = (schedule.last_us, schedule.last_start_us, schedule.last_end_us)
    last, start, end = ((us // SECOND_US).to_bytes(5) for us in moments)
    ended = b"".join(bytes((how,)) + _duration(us // 1_000) for how, us in schedule.outcomes)
    head = numbers + last + (schedule.planted or bytes(12)) + start + end + bytes((len(schedule.outcomes),))
    return head + (schedule.running or b"") + ended + schedule.stored


def _duration(ms: int) -> bytes:
    """Return a duration as its first 11 bits, and how many bits follow."""
    cut = max(0, ms.bit_length() - 11)
    return (cut * 2_048 + (ms >> cut)).to_bytes(2)
