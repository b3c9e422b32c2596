"""The APIs of a shard with its recurring schedules, at a moment at which an hour begins."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from django_delayq.dispatcher.planter import Planter
from django_delayq.job.job import Claim, Job
from django_delayq.job.outcome import Action
from django_delayq.recurring.run import RunOutcome
from django_delayq.recurring.schedule import make_schedule
from django_delayq.store.records import DeclaredBy
from django_delayq.store.schedules.definition import Definition
from django_delayq.store.schedules.schedule_declarations import ScheduleDeclarations
from django_delayq.store.schedules.schedules import Schedules
from django_delayq.store.schedules.stored_schedule import StoredSchedule
from tests.shard_apis import HOUR, ShardApis, settlement

NOON = 1_800_000_000_000_000 // HOUR * HOUR
TASK = "tests.sample_app.tasks.noop"


class ScheduledApis:
    """The APIs of a shard, and what its schedules have planted."""

    def __init__(self, apis: ShardApis) -> None:
        self.apis = apis
        self.schedules = Schedules(apis.store._producer_shards[apis.shard.index])
        self.declarations = ScheduleDeclarations(apis.store._producer_shards[apis.shard.index])
        self.planter = Planter(apis.shard)
        apis.clock.now_us = NOON

    def define(self, name: str = "report", *, queue: str = "default", args: Any = (), **options: Any) -> Definition:
        """Return a definition; by default it is due each hour."""
        if "every" not in options and "cron" not in options:
            options["every"] = 3_600
        schedule = make_schedule(name, now_us=self.apis.clock.now_us, **options)
        job = Job(raw_id=b"", shard=self.apis.shard.index, task=TASK, queue=queue, args=list(args))
        return Definition(schedule, job)

    def set(self, *definitions: Definition) -> None:
        """Store schedules, and cancel the jobs that they had."""
        for raw_id in self.schedules.set_schedules(definitions):
            self.apis.operations.cancel(raw_id)

    def declare(self, *definitions: Definition, by: DeclaredBy, kept: Sequence[bytes] = ()) -> list[bytes] | None:
        """Declare schedules after whoever declared last, and cancel the jobs that they had."""
        after = self.declarations.declared_by()
        to_cancel = self.declarations.declare_schedules(definitions, by=by, kept=kept, after=after)
        for raw_id in to_cancel or ():
            self.apis.operations.cancel(raw_id)
        return to_cancel

    def add(self, name: str = "report", **options: Any) -> Definition:
        """Define and store a schedule."""
        definition = self.define(name, **options)
        self.set(definition)
        return definition

    def plant(self) -> int:
        """Promote and plant until nothing is left to do now; return how many jobs were planted."""
        planted = 0
        for _ in range(100):
            promoted = self.apis.promote()
            if not promoted.schedules:
                return planted
            planted += self.planter.plant(promoted.schedules, now_us=self.apis.clock.now_us)
        raise AssertionError("there are always schedules to plant")

    def find(self, definition: Definition) -> StoredSchedule:
        """Return a schedule as it is stored."""
        (found,) = self.schedules.find([definition.id])
        assert found is not None
        return found

    def advance_to(self, moment_us: int) -> None:
        """Set the clock, promote and plant."""
        self.apis.clock.now_us = moment_us
        self.plant()

    def take(self, want: int = 10) -> list[Claim]:
        """Claim what is ready, settle what is to be dropped, and return the other claims."""
        claims = self.apis.worker().take(want).claims
        dropped = [
            settlement(claim, Action.ACKNOWLEDGE, run_outcome=RunOutcome.SKIPPED)
            for claim in claims
            if claim.is_dropped
        ]
        self.apis.worker().take(0, settle=dropped)
        return [claim for claim in claims if not claim.is_dropped]

    def settle(self, claim: Claim, how: Action = Action.ACKNOWLEDGE, **options: Any) -> None:
        """Settle a claim by another worker's exchange, as its lease allows."""
        self.apis.worker().settle(claim, how, **options)

    def run_all(self) -> list[float]:
        """Claim and acknowledge what is ready; return the occurrences, in hours since noon."""
        found = []
        while claims := self.take():
            for claim in claims:
                self.settle(claim)
                found.append(hour_of(claim))
        return found


def hour_of(claim: Claim) -> float:
    """Return the occurrence of a claimed job, in hours since noon."""
    assert claim.job is not None
    assert claim.job.occurrence is not None
    assert claim.job.occurrence.moment_us is not None
    return (claim.job.occurrence.moment_us - NOON) / HOUR


@pytest.fixture
def scheduled(make_apis: Callable[..., ShardApis]) -> ScheduledApis:
    """The APIs of shard 0 at noon."""
    return ScheduledApis(make_apis(LIMITS={"two": {"max_running": 2}}))
