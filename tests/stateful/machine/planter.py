"""Planter: the real planning of recurring schedules; what it reads and what it stores is compared with the model."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from django_delayq.dispatcher.planter import Planter
from django_delayq.job.job import Expiry, Flag, Occurrence
from django_delayq.job.unsent import UnsentJob
from django_delayq.store.schedules.planting import Planned
from django_delayq.store.schedules.stored_schedule import StoredSchedule

if TYPE_CHECKING:
    from tests.stateful.machine.actors import World

LOOK_AGAIN_US = 60_000_000


class DrivenPlanter(Planter):
    """The planter of a dispatcher. If it `waits`, it keeps what it planned: meanwhile anything may happen."""

    def __init__(self, world: "World") -> None:
        super().__init__(world.shard)
        self.world, self.waits = world, False
        self.planned: list[Planned] = []
        #: All that it ever sent: a copy may arrive late.
        self.sent: list[list[Planned]] = []

    def plant(self, ids: Sequence[bytes], *, now_us: int) -> int:
        """Plan, and store what is planned."""
        assert now_us == self.world.model.now
        if not {each.schedule.id for each in self.planned}.isdisjoint(ids):
            # A dispatcher has one plan of a schedule at a time.
            self.store_planned()
        # Not those that a few milliseconds of this machine allow: each walk must be repeatable.
        self.planned += [self._planned(schedule) for schedule in self._planting.read(sorted(ids))]
        return 0 if self.waits else self.store_planned()

    def store_planned(self, most: int = 500) -> int:
        """Send what was planned."""
        planned, self.planned = self.planned[:most], self.planned[most:]
        if planned:
            self.sent.append(planned)
            self.send(planned)
        return len(planned)

    def send(self, planned: Sequence[Planned]) -> None:
        """Plant, and compare with the model."""
        expected = [self._plant_in_model(each) for each in planned]
        assert self._planting.plant(planned) == expected

    def as_unreadable(self) -> None:
        """Let what was planned be that of a dispatcher which cannot read the schedules."""
        later_us = self.world.model.now + LOOK_AGAIN_US
        self.planned = [Planned(each.schedule, None, look_again_us=later_us) for each in self.planned]

    def _plant_in_model(self, planted: Planned) -> bool:
        record, plan = planted.schedule.record, planted.plan
        return self.world.model.plant(
            planted.schedule.id,
            read=(record.version, record.occurrence_us),
            jobs=[] if plan is None else list(zip(plan.occurrences, planted.jobs, strict=True)),
            next_us=planted.look_again_us if plan is None else plan.next_planting_us,
            is_unreadable=plan is None,
        )

    def _planned(self, schedule: StoredSchedule) -> Planned:
        model = self.world.model
        planned = self._plan(schedule, now_us=model.now)
        assert planned.plan is not None
        assert tuple(planned.plan) == model.plan(schedule.id)
        for occurrence, draft in zip(planned.plan.occurrences, planned.jobs, strict=True):
            self._check_job(schedule, occurrence, draft)
        # With ids of the walk, which do not differ in each run.
        numbered = [replace(draft, job=replace(draft.job, raw_id=self._next_id())) for draft in planned.jobs]
        return replace(planned, jobs=numbered)

    def _check_job(self, stored: StoredSchedule, occurrence: int, draft: UnsentJob) -> None:
        """Check that a job is what its schedule was set to make."""
        schedule = self.world.model.schedules[stored.id]
        definition, rhythm = schedule.definition, schedule.rhythm
        asked, until_us = definition.job.expiry, rhythm.expires_us(occurrence)
        expiry = asked if until_us is None else Expiry(moment_us=until_us)
        if until_us and asked and asked.from_due(rhythm.due_us(occurrence)).moment_us <= until_us:
            expiry = asked
        flags = draft.job.flags
        assert Flag.DELAYED in flags and Flag.LIMITED in flags and Flag.HAS_EXTRAS in flags
        assert draft.job == replace(
            definition.job,
            raw_id=draft.job.raw_id,
            occurrence=Occurrence(definition.schedule.name, occurrence),
            expiry=expiry,
            flags=flags,
        )
        assert (draft.cost, draft.drops) == (definition.cost, definition.drops)

    def _next_id(self) -> bytes:
        return next(self.world.numbers).to_bytes(12)
