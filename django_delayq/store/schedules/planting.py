"""Planting: enqueue the next jobs of recurring schedules. Called by the dispatcher."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from django_delayq.job.ids import next_id
from django_delayq.job.job import Expiry, Occurrence
from django_delayq.job.unsent import UnsentJob, encode_new
from django_delayq.recurring.plan import Plan
from django_delayq.store.client.resp import Part
from django_delayq.store.client.script import Script
from django_delayq.store.enqueue import Enqueue
from django_delayq.store.schedules.definition import Definition
from django_delayq.store.schedules.schedules import UNREADABLE, Schedules, StoredSchedule
from django_delayq.store.shard import Shard

_PLANT = Script("plant")


@dataclass(frozen=True, slots=True)
class Planted:
    """A schedule as it was read, and the plan for it; None: this process cannot read it."""

    schedule: StoredSchedule
    plan: Plan | None
    #: When a dispatcher looks at a schedule again that this process cannot read, µs since the epoch.
    look_again_us: int = 0


class Planting:
    """API of one shard for one dispatcher."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._enqueue = Enqueue(shard)
        self._schedules = Schedules(shard)

    def read(self, ids: Sequence[bytes]) -> list[StoredSchedule]:
        """Return the schedules of these ids that exist, up to 250; what has no record is removed. One round trip."""
        found = self._schedules.find(ids)
        if missing := [id for id, schedule in zip(ids, found, strict=True) if schedule is None]:
            # Edited manually: without an end, they would be read at each promotion.
            self._shard.execute("ZREM", self._shard.keys("next_planting"), *missing)
        return [schedule for schedule in found if schedule is not None]

    def plant(self, planted: Sequence[Planted]) -> list[bool]:
        """Enqueue the planned jobs of each schedule that has not changed since; return for each whether it had not.

        Atomic, one round trip, O(log n) a job; up to 250 jobs in all.
        """
        queues = list(dict.fromkeys(filter(None, map(_queue_of, planted))))
        numbers = {queue: number for number, queue in enumerate(queues, 1)}
        args: list[Part] = [self._shard.config.dispatcher.due_first_us // 1_000]
        firsts, count = [], 0
        for each in planted:
            firsts.append(count)
            count += self._add(args, each, numbers)
        more_keys = [key for queue in queues for key in self._shard.keys.of_queue(queue)]
        replies = self._shard.run(_PLANT, args, more_keys=more_keys)
        return [bool(replies[first]) for first in firsts]

    def _add(self, args: list[Part], planted: Planted, numbers: dict[str, int]) -> int:
        """Append the arguments of a schedule; return how many jobs of the script they are."""
        schedule, plan, record = planted.schedule, planted.plan, planted.schedule.record
        last_us, flags = record.occurrence_us, record.flags & ~UNREADABLE
        if plan is None or schedule.definition is None:
            args += (schedule.id, record.version, last_us, flags | UNREADABLE, planted.look_again_us, "")
            return 1
        next_us = plan.next_planting_us
        if not plan.occurrences:
            args += (schedule.id, record.version, last_us, flags, "", "")
            return 1
        for occurrence_us in plan.occurrences:
            item = new_job(schedule.definition, occurrence_us, max_payload=self._shard.config.tasks.max_payload)
            due, body = self._enqueue.due_and_body(item, None)
            extras = self._enqueue.extras(item)._replace(schedule_version=record.version)
            args += (schedule.id, record.version, last_us, flags, "" if next_us is None else next_us, occurrence_us)
            args += (item.job.member, numbers[item.job.queue], due, body, extras.pack())
            last_us = occurrence_us
        return len(plan.occurrences)


def new_job(definition: Definition, occurrence_us: int | None, *, max_payload: int) -> UnsentJob:
    """Return the job of an occurrence, or the job that a person runs by hand now."""
    schedule, expiry, due_us = definition.schedule, definition.job.expiry, None
    if occurrence_us is not None:
        due_us = schedule.due_us(occurrence_us)
        expires_after_us = schedule.expires_after_us(occurrence_us, schedule.next_after(occurrence_us))
        if expires_after_us is not None:
            expiry = Expiry(moment_us=due_us + expires_after_us)
    job = replace(definition.job, raw_id=next_id(), occurrence=Occurrence(schedule.name, occurrence_us), expiry=expiry)
    job, body = encode_new(job, max_payload=max_payload, delayed=due_us is not None)
    return UnsentJob(job=job, body=body, due_us=due_us, cost=definition.cost, drops=definition.drops)


def _queue_of(planted: Planted) -> str | None:
    """Return the queue of the jobs to plant; None if there are none."""
    has_jobs = planted.plan is not None and planted.plan.occurrences
    return planted.schedule.definition.job.queue if planted.schedule.definition and has_jobs else None
