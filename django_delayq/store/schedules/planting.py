"""Planting: the jobs of recurring schedules. A dispatcher enqueues the next ones; a person may run one more."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from django.views.decorators.debug import sensitive_variables

from django_delayq.clock import LATEST_US
from django_delayq.job.ids import next_id
from django_delayq.job.job import Expiry, Flag, Occurrence
from django_delayq.job.unsent import UnsentJob, encode_new
from django_delayq.recurring.plan import Plan
from django_delayq.store.client.script import Script
from django_delayq.store.enqueue import Enqueue
from django_delayq.store.nodes.resp import Part
from django_delayq.store.schedules.definition import Definition
from django_delayq.store.schedules.schedules import Schedules
from django_delayq.store.schedules.stored_schedule import UNREADABLE, StoredSchedule, read_schedule
from django_delayq.store.shard import Shard

_PLANT = Script("plant")
#: What all jobs of schedules are, and those of occurrences.
_FLAGS = Flag.HAS_EXTRAS | Flag.LIMITED
_PLANTED_FLAGS = _FLAGS | Flag.DELAYED


@dataclass(frozen=True, slots=True)
class Planned:
    """A schedule as it was read, the plan for it, and the jobs of its occurrences."""

    schedule: StoredSchedule
    #: None: this process cannot read the schedule, or cannot make its jobs.
    plan: Plan | None
    jobs: Sequence[UnsentJob] = ()
    #: Without a plan: when a dispatcher looks at the schedule again, µs since the epoch.
    look_again_us: int = 0


class Planting:
    """API of one shard for one dispatcher."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._enqueue = Enqueue(shard)
        self._schedules = Schedules(shard)

    def read(self, ids: Sequence[bytes]) -> Iterator[StoredSchedule]:
        """Yield the schedules of these ids that exist, up to 250; what has no record is removed. One round trip."""
        # Decoded one by one, since the caller plans as many as it has the time for.
        for id, stored in zip(ids, self._schedules.read(ids), strict=True):
            if schedule := read_schedule(self._shard, id, stored):
                yield schedule
            else:
                # Redis was edited manually. If the entry stayed, each promotion would read it.
                self._shard.execute("ZREM", self._shard.keys("next_planting"), id)

    # Errors of the client have bodies in their frames.
    @sensitive_variables()
    def plant(self, planned: Sequence[Planned]) -> list[bool]:
        """Enqueue the planned jobs of each schedule that has not changed since; return for each whether it had not.

        Atomic, one round trip, O(log n) a job; up to 250 jobs in all.
        """
        queues = dict.fromkeys(item.job.queue for each in planned for item in each.jobs)
        numbers = {queue: number for number, queue in enumerate(queues, 1)}
        args: list[Part] = [self._shard.config.dispatcher.due_first_us // 1_000]
        firsts, count = [], 0
        for each in planned:
            firsts.append(count)
            count += self._add(args, each, numbers)
        more_keys = [key for queue in queues for key in self._shard.keys.of_queue(queue)]
        replies = self._shard.run(_PLANT, args, more_keys=more_keys)
        return [bool(replies[first]) for first in firsts]

    def _add(self, args: list[Part], planned: Planned, numbers: dict[str, int]) -> int:
        """Append the arguments of a schedule; return how many jobs of the script they are."""
        schedule, plan, record = planned.schedule, planned.plan, planned.schedule.record
        last_us, flags = record.occurrence_us, record.flags & ~UNREADABLE
        if plan is None:
            args += (schedule.id, record.version, last_us, flags | UNREADABLE, planned.look_again_us, "")
            return 1
        next_us = plan.next_planting_us
        if not plan.occurrences:
            args += (schedule.id, record.version, last_us, flags, "" if next_us is None else next_us, "")
            return 1
        for occurrence_us, item in zip(plan.occurrences, planned.jobs, strict=True):
            due, body = self._enqueue.due_and_body(item, None)
            extras = self._enqueue.extras(item)._replace(schedule_version=record.version)
            args += (schedule.id, record.version, last_us, flags, "" if next_us is None else next_us, occurrence_us)
            args += (item.job.member, numbers[item.job.queue], due, body, extras.pack())
            last_us = occurrence_us
        return len(plan.occurrences)


def new_job(definition: Definition, occurrence_us: int | None, *, shard: int | None = None) -> UnsentJob:
    """Return the job of an occurrence; None: that of `run_now()`, which has no occurrence and is due at once.

    `shard` is that of the schedule, if it may have moved since it was read.
    """
    schedule, expiry, due_us = definition.schedule, definition.job.expiry, None
    if occurrence_us is not None:
        due_us = schedule.due_us(occurrence_us)
        expires_after_us = schedule.expires_after_us(occurrence_us, schedule.next_after(occurrence_us))
        if expires_after_us is not None:
            window = Expiry(moment_us=min(due_us + expires_after_us, LATEST_US))
            # The option `expires` of the task may end earlier.
            is_first = expiry is None or expiry.from_due(due_us).moment_us > window.moment_us
            expiry = window if is_first else expiry
    occurrence = Occurrence(schedule.name, occurrence_us)
    # With its flags: otherwise a second copy would be made for them, which takes a tenth of the time of planting.
    flags = definition.job.flags | (_FLAGS if due_us is None else _PLANTED_FLAGS)
    shard = definition.job.shard if shard is None else shard
    job = replace(definition.job, raw_id=next_id(), shard=shard, occurrence=occurrence, expiry=expiry, flags=flags)
    # MAX_PAYLOAD counts when the schedule is set. Its jobs have more in their bodies, and it may be less by now.
    job, body = encode_new(job, max_payload=sys.maxsize, delayed=due_us is not None)
    return UnsentJob(job=job, body=body, due_us=due_us, cost=definition.cost, drops=definition.drops)
