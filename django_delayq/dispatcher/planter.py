"""Planter: enqueues the next jobs of recurring schedules, for one dispatcher.

Several dispatchers may plant at a time: a job is stored only if its schedule is as it was read. Each takes the
schedules in an order of its own, so that they seldom plan the same ones.
"""

import random
from collections.abc import Sequence
from time import monotonic

from django_delayq.clock import SECOND_US
from django_delayq.exceptions import DelayQError, InvalidSchedule
from django_delayq.logs import logger
from django_delayq.recurring.plan import make_plan
from django_delayq.store.schedules.planting import Planned, Planting, new_job
from django_delayq.store.schedules.stored_schedule import StoredSchedule
from django_delayq.store.shard import Shard

#: Most schedules of one batch, and after how many jobs or seconds of planning it is sent, since no job is promoted
#: meanwhile.
_BATCH, _JOBS, _LONGEST = 24, 200, 0.003
#: µs after which a dispatcher looks again at a schedule that it cannot read: one of a later release may plant it first.
_LOOK_AGAIN_US = 60 * SECOND_US


class Planter:
    """Plans the next jobs of the schedules that a promotion named, and enqueues them."""

    def __init__(self, shard: Shard) -> None:
        self._planting = Planting(shard)
        #: Schedules that this process cannot plant; each was logged once.
        self._logged = set[bytes]()

    def plant(self, ids: Sequence[bytes], *, now_us: int) -> int:
        """Plant for as many of the schedules as a few milliseconds allow, at least one. Return how many jobs.

        `now_us` is Redis's clock. Two round trips.
        """
        planned, count, until = list[Planned](), 0, monotonic() + _LONGEST
        for schedule in self._planting.read(random.sample(ids, min(len(ids), _BATCH))):
            planned.append(self._plan(schedule, now_us=now_us))
            count += len(planned[-1].jobs)
            if count >= _JOBS or monotonic() > until:
                break
        done = self._planting.plant(planned) if planned else []
        return sum(len(each.jobs) for each, is_done in zip(planned, done, strict=True) if is_done)

    def _plan(self, schedule: StoredSchedule, *, now_us: int) -> Planned:
        record = schedule.record
        try:
            if schedule.definition is None:
                raise schedule.fault or InvalidSchedule()
            plan = make_plan(
                schedule.definition.schedule,
                last_us=record.occurrence_us,
                last_start_us=record.last_start_us,
                is_waiting=schedule.planted is not None,
                is_running=schedule.running is not None,
                now_us=now_us,
            )
            jobs = [new_job(schedule.definition, occurrence_us) for occurrence_us in plan.occurrences]
        except DelayQError as error:
            # One schedule must not keep a dispatcher from its other work.
            if schedule.id not in self._logged:
                self._logged.add(schedule.id)
                logger.error("Recurring schedule %s is not planted: %s", schedule.id.hex(), error)
            return Planned(schedule, None, look_again_us=now_us + _LOOK_AGAIN_US)
        return Planned(schedule, plan, jobs)
