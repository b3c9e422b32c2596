"""Schedule steps: what the rules of recurring schedules do, each compared with the model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django_delayq.clock import DAY_US, moment
from django_delayq.exceptions import InvalidSchedule
from django_delayq.job.job import Expiry, Job
from django_delayq.job.outcome import OutcomeKind
from django_delayq.job.retry import RetryPolicy
from django_delayq.recurring.schedule import make_schedule
from django_delayq.store.digests import schedule_id
from django_delayq.store.records import DeclaredBy
from django_delayq.store.schedules.definition import Definition
from django_delayq.store.schedules.planting import new_job
from django_delayq.store.schedules.schedule_declarations import ScheduleDeclarations
from django_delayq.store.schedules.schedules import Schedules
from tests.stateful.machine.actors import DrivenDispatcher, DrivenWorker, World
from tests.stateful.machine.limited import Limited
from tests.stateful.machine.strategies import SECOND
from tests.stateful.model.limits import TASK
from tests.stateful.model.schedules import IsDeclared, ModelSchedule
from tests.stateful.model.values import ModelJob, Place

NAMES = ("a", "b", "ä" * 100)
#: The interval of most schedules: several occurrences come within a lease.
EVERY = 4


@dataclass(frozen=True)
class Recurring:
    """A schedule to set."""

    name: str = "a"
    every: int = EVERY
    overlap: str = "skip"
    catch_up: str = "last"
    window: int | None = None
    jitter: int | None = None
    #: Seconds until its end.
    ends: int | None = None
    pause_after: int | None = None
    queue: str = "default"
    tenant: str | None = None
    priority: int = 0
    max_attempts: int = 1
    kept: bool = False
    expires_us: int | None = None
    #: Its argument: a changed one makes another definition.
    arg: int = 0


def possible(each: Recurring) -> Recurring:
    """Return one that can be set: not all options go together."""
    catch_up = each.catch_up if each.catch_up != "all" or each.overlap in ("wait", "allow") else "last"
    window = each.window if catch_up != "last" else None
    if catch_up == "all" and each.every == EVERY:
        # A day has too many occurrences for a walk.
        window = window or 30
    return replace(each, catch_up=catch_up, window=window)


class ScheduleSteps(Limited):
    """Nothing random: one step in Redis and in the model, or the way to a state of a schedule and its job."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.schedules = Schedules(world.store._producer_shards[0])
        self.declarations = ScheduleDeclarations(world.store._producer_shards[0])

    def definition(self, of: Recurring) -> Definition:
        now = self.world.model.now
        schedule = make_schedule(
            of.name,
            now_us=now,
            every=of.every,
            overlap=of.overlap,
            catch_up=of.catch_up,
            window=of.window,
            jitter=of.jitter,
            end=None if of.ends is None else moment(now // SECOND * SECOND + of.ends * SECOND + of.every * SECOND),
            pause_after=of.pause_after,
        )
        job = Job(
            raw_id=b"",
            shard=0,
            task=TASK,
            queue=of.queue,
            args=[of.arg],
            priority=of.priority,
            retry=RetryPolicy(max_attempts=of.max_attempts, base=1, cap=4),
            tenant=of.tenant,
            result_ttl_us=DAY_US if of.kept else None,
            expiry=None if of.expires_us is None else Expiry(moment_us=0, span_us=of.expires_us),
            limits=self.job_limits.uses,
        )
        return Definition(schedule, job, cost=self.job_limits.cost, drops=self.job_limits.drops)

    def id_of(self, name: str) -> bytes:
        return schedule_id(TASK, name)

    def stored(self, some: Sequence[Recurring]) -> list[tuple[Definition, bytes]]:
        """Return the schedules as processes make them, and as they are stored."""
        shard, made = self.world.shard, [self.definition(each) for each in some]
        return [(each, each.pack(signer=shard.signer, cipher=shard.cipher)) for each in made]

    def set(self, some: Sequence[Recurring], *, cancels: bool = True) -> None:
        made = self.stored(some)
        found, expected = self.compared(
            lambda: self.schedules.set_schedules([each for each, _ in made]),
            lambda: self.world.model.set_schedules(made),
        )
        assert found == expected
        self.cancel_all(found if cancels else None)

    def declare(
        self,
        some: Sequence[Recurring],
        *,
        by: DeclaredBy,
        kept: Sequence[str] = (),
        late: bool = False,
        cancels: bool = True,
    ) -> None:
        made = self.stored(some)
        kept_ids = [self.id_of(name) for name in kept]
        before = self.declarations.declared_by()
        assert (b"" if before is None else before.pack()) == self.world.model.declared_by
        after = replace(before or by, started_us=0) if late else before
        found = self.declarations.declare_schedules([each for each, _ in made], by=by, kept=kept_ids, after=after)
        packed = b"" if after is None else after.pack()
        known = dict(self.world.model.schedules)
        expected = self.world.model.declare(made, by=by.pack(), kept=kept_ids, after=packed)
        assert (None if found is None else set(found)) == expected
        self.cancel_all(found if cancels else None)
        self.let_versions_pass(known)

    def pause(self, name: str, *, cancels: bool = True) -> None:
        id = self.id_of(name)
        found, expected = self.compared(
            lambda: self.schedules.pause_schedule(id), lambda: self.world.model.pause_schedule(id)
        )
        assert found == expected
        self.cancel_all([found] if cancels and found else None)

    def resume(self, name: str) -> None:
        id = self.id_of(name)
        found, expected = self.compared(
            lambda: self.schedules.resume_schedule(id), lambda: self.world.model.resume_schedule(id)
        )
        assert found == expected

    def delete(self, names: Sequence[str], *, cancels: bool = True) -> None:
        ids = [self.id_of(name) for name in names]
        known = dict(self.world.model.schedules)
        found, expected = self.compared(
            lambda: self.schedules.delete_schedules(ids), lambda: self.world.model.delete_schedules(ids)
        )
        assert found == expected
        self.cancel_all([each for each in found or () if each] if cancels else None)
        self.let_versions_pass(known)

    def let_versions_pass(self, known: Mapping[bytes, ModelSchedule]) -> None:
        """Let a millisecond pass for each version of the schedules that were deleted.

        Versions are times. If one is made again within the millisecond of a version, it has that version again, and a
        plan or a job of the deleted one would count as its own.
        """
        gone_ms = [each.changed_ms for id, each in known.items() if id not in self.world.model.schedules]
        self.world.advance_to(max(self.world.model.now, (max(gone_ms, default=0) + 1) * 1_000))

    def compared(self, act: Callable[[], Any], expect: Callable[[], Any]) -> tuple[Any, Any]:
        """Return what both return; None if both refuse."""
        try:
            found: Any = act()
        except (InvalidSchedule, LookupError):
            found = "refused"
        try:
            expected: Any = expect()
        except (IsDeclared, KeyError):
            expected = "refused"
        assert (found == "refused") == (expected == "refused"), (found, expected)
        return (None, None) if found == "refused" else (found, expected)

    def cancel_all(self, raw_ids: Sequence[bytes] | None) -> None:
        for raw_id in raw_ids or ():
            self.change("cancel", raw_id)

    def run_by_hand(self, definition: Definition, *, number: int) -> list[bytes]:
        """Enqueue jobs of a schedule, as it was read."""
        drafts = [new_job(definition, None) for _ in range(number)]
        drafts = [
            replace(draft, job=replace(draft.job, raw_id=next(self.world.numbers).to_bytes(12))) for draft in drafts
        ]
        self.send(drafts)
        self.drafts += drafts[:1]
        return [draft.job.raw_id for draft in drafts]

    def planned_by(self, pick: int) -> DrivenDispatcher:
        """Let a dispatcher plan, but not store that yet."""
        dispatcher = self.dispatchers[pick % 2]
        dispatcher.planter.waits = True
        dispatcher.step()
        dispatcher.planter.waits = False
        return dispatcher

    def look(self) -> None:
        """Let a dispatcher promote as one that was notified: a later notification is seen to be sent."""
        if self.world.client.lpop(self.world.keys("notify_dispatcher")):
            self.world.model.alarm_heard = True
        super().look()

    # -- the way to a state

    def schedule_named(self, name: str) -> ModelSchedule | None:
        return self.world.model.schedules.get(self.id_of(name))

    def job_at(self, name: str, *places: Place) -> ModelJob | None:
        """Return the last job of a schedule that is in one of these places."""
        jobs = [job for job in self.world.model.jobs.values() if job.schedule == self.id_of(name)]
        return next((job for job in reversed(jobs) if job.place in places), None)

    def settle_time(self) -> None:
        """Let a dispatcher do all that is to be done now."""
        self.look()
        self.sweep_limits()
        self.dispatchers[0].apply_judged()

    def next_occurrence(self, name: str) -> None:
        """Let the next job of a schedule be planted in time, and become ready."""
        self.look()
        schedule, model = self.schedule_named(name), self.world.model
        if schedule is None or schedule.is_paused:
            return
        due_us = schedule.rhythm.due_us(schedule.rhythm.after(model.now) or model.now)
        while schedule.next_us is not None and model.now < schedule.next_us < due_us:
            self.world.advance_to(schedule.next_us)
            self.look()
        self.world.advance_to(due_us)
        self.look()

    def started(self, of: Recurring) -> DrivenWorker:
        """Set a schedule, and let a worker that holds nothing else claim its next job."""
        worker = self.fresh_worker()
        self.set([of])
        self.next_occurrence(of.name)
        worker.exchange(2, queues=[of.queue])
        worker.heartbeat(worker.held)
        return worker

    def in_state(self, of: Recurring, state: str) -> bytes | None:
        """Bring a job of a schedule into a state; return its id, if that went well."""
        if state in ("scheduled", "ready"):
            self.set([of])
            self.look()
            if state == "ready":
                self.next_occurrence(of.name)
            job = self.job_at(of.name, Place.SCHEDULED, Place.READY)
            return job and job.raw_id
        worker = self.started(of)
        if state == "retried":
            worker.exchange(0, endings=[OutcomeKind.RETRY_REQUESTED] * len(worker.held))
        elif state != "running":
            self.next_occurrence(of.name)
            self.worker(0).exchange(2, queues=[of.queue])
        places = {"running": Place.CLAIMED, "dropped": Place.CLAIMED, "parked": Place.PARKED}
        job = self.job_at(of.name, places.get(state, Place.SCHEDULED))
        return job and job.raw_id
