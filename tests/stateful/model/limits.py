"""Limits in plain Python: rules, times, slots and parked jobs, and what becomes of them when a job moves."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from typing import NamedTuple

from django_delayq.conf.limit_rules import LimitRule
from django_delayq.job.job import Flag
from django_delayq.store.digests import limit_name_digest, paused_task_digest, queue_hash, tenant_digest
from tests.stateful.model.model_state import SECOND_US, ModelState
from tests.stateful.model.starts import Starts
from tests.stateful.model.values import ModelJob, Place

#: The only task of the machine.
TASK = "app.task"
PAUSED_ID = paused_task_digest(TASK)
#: When the dispatcher looks at a limit again at which a job was just parked.
LOOK_AGAIN_US = 2 * SECOND_US
#: A job of a queue that is not fair has no group.
NO_GROUP = bytes(8)
FREE = LimitRule()


@dataclass
class Limits:
    """What Redis holds of limits, but for the slots and the places of jobs, which the jobs have."""

    #: Digest of a name -> the rule.
    rules: dict[bytes, LimitRule] = field(default_factory=dict)
    times: dict[bytes, float] = field(default_factory=dict)
    back_offs: dict[bytes, int] = field(default_factory=dict)
    #: Limit -> when the dispatcher looks at it (µs).
    open: dict[bytes, int] = field(default_factory=dict)
    #: Limit -> queue -> the tenant whose job was let in last.
    turns: dict[bytes, dict[str, bytes]] = field(default_factory=dict)
    #: Limit and what stands for code outside a job -> when its slot is given back.
    holders: dict[tuple[bytes, bytes], int] = field(default_factory=dict)
    #: When the task was paused (µs).
    paused_us: int | None = None
    #: Of the call that is under way: slots of jobs that it has chosen, but not claimed yet, and times with their costs.
    #: A person's order may move a time on farther than the rule allows.
    chosen: Counter[bytes] = field(default_factory=Counter)
    charged: dict[bytes, float] = field(default_factory=dict)


class Obstacle(NamedTuple):
    """What keeps a job from beginning, until when, and whether the job is dropped."""

    limit: bytes
    moment: float = inf
    drops: bool = False


@dataclass
class Room:
    """How much of a limit is left: with the jobs that run, or also with those that are about to."""

    rule: LimitRule
    time: float
    slots: int
    back_off: int = 0

    def opens_at(self, cost: int) -> float:
        """Return from when on a job of this cost may begin; infinite: when a slot is given back."""
        if self.rule.max_running is not None and self.slots >= self.rule.max_running:
            return inf
        ahead = (cost - max(self.rule.burst, cost)) * (self.rule.interval_us or 0.0)
        return max(self.back_off, self.time + ahead)

    def with_jobs(self, number: int, cost: int) -> "Room":
        """Return what is left after some jobs more."""
        time = self.time + cost * (self.rule.interval_us or 0.0)
        return Room(self.rule, time, self.slots + number, self.back_off)


@dataclass
class Limited(ModelState):
    """The state with the transitions of limits."""

    limits: Limits = field(default_factory=Limits)
    starts: Starts = field(default_factory=Starts)

    def set_limits(self, rules: Iterable[tuple[str, LimitRule]]) -> bool:
        """Store these rules in place of all others."""
        self.starts = Starts()
        before, self.limits.rules = self.limits.rules, {limit_name_digest(name): rule for name, rule in rules}
        return before != self.limits.rules

    def back_off(self, limit: bytes, length_us: int) -> None:
        """Keep all jobs of a limit from beginning for some time."""
        self.limits.back_offs[limit] = max(self.now + length_us, self.limits.back_offs.get(limit, 0))

    def pause_task(self) -> bool:
        """Let no worker begin jobs of the task."""
        was_paused = self.limits.paused_us is not None
        self.limits.paused_us = self.limits.paused_us if was_paused else self.now
        return not was_paused

    def resume_task(self) -> bool:
        """Let workers begin them again."""
        was_paused, self.limits.paused_us = self.limits.paused_us is not None, None
        self._open(PAUSED_ID, 0)
        return was_paused

    def take_slot(self, limit: bytes, lease: bytes, cost: int, length_us: int | None) -> tuple[str, int | None]:
        """Take a slot for a running job, or for other code during some time."""
        job = self.leased(lease)
        if length_us is None and job is None:
            return "LOST", None
        if (limit, lease) in self.limits.holders or job and any(limit == held for held, _ in job.held or ()):
            return "HELD", None
        self._correct_time(limit)
        opens = self._room(limit).opens_at(cost)
        if opens > self.now:
            return "CLOSED", None if opens == inf else ceil(opens - self.now)
        self._charge(limit, cost)
        if length_us is not None:
            self.limits.holders[limit, lease] = self.now + length_us
        elif job:
            job.held = [*(job.held or ()), (limit, cost)]
        self.limits.chosen.clear()
        self._check_start(limit, cost, lease)
        self._open(limit, self._room(limit).opens_at(1))
        self.limits.charged.clear()
        return "TAKEN", None

    def give_back_slot(self, limit: bytes, lease: bytes) -> bool:
        """Give a slot back."""
        job = self.leased(lease)
        if (limit, lease) in self.limits.holders:
            del self.limits.holders[limit, lease]
        elif job and any(limit == held for held, _ in job.held or ()):
            job.held = [each for each in job.held or () if each[0] != limit]
        else:
            return False
        self._open(limit, self._room(limit).opens_at(1))
        return True

    def let_in(self, limits: Iterable[bytes], queues: Sequence[str], again_us: int) -> int:
        """Make parked jobs ready, as many as may begin; in a fair queue the tenants take turns."""
        moved = 0
        for limit in limits:
            opens = inf
            for queue in {job.queue for job in self._parked(limit)} & set(queues):
                number, moment = self._let_in_queue(limit, queue)
                moved, opens = moved + number, min(opens, moment)
            waiting = {job.queue for job in self._parked(limit)}
            turns = {queue: tenant for queue, tenant in self.limits.turns.get(limit, {}).items() if queue in waiting}
            self.limits.turns[limit] = turns
            if not turns:
                del self.limits.turns[limit]
            self.limits.open.pop(limit, None)
            if waiting:
                self.limits.open[limit] = ceil(min(opens, self.now + again_us))
        return moved

    def limits_to_let_in(self) -> tuple[set[bytes], set[str]]:
        """Return the limits that the dispatcher has to look at, and the queues whose jobs wait for them."""
        limits = {limit for limit, moment in self.limits.open.items() if moment <= self.now}
        return limits, {job.queue for job in self.at(Place.PARKED) if job.waiting_for in limits}

    def _end_limits(self) -> None:
        """Forget what has passed, and free the slots that code outside jobs has not given back."""
        limits = self.limits
        limits.times = {limit: moment for limit, moment in limits.times.items() if moment > self.now}
        limits.back_offs = {limit: moment for limit, moment in limits.back_offs.items() if moment > self.now}
        for (limit, lease), ends in list(limits.holders.items()):
            if ends <= self.now:
                del limits.holders[limit, lease]
                self._open(limit, 0)

    def slots(self, limit: bytes) -> int:
        """Return how many slots of a limit are taken."""
        of_jobs = sum(limit == held for job in self.at(Place.CLAIMED) for held, _ in job.held or ())
        return of_jobs + sum(limit == held for held, _ in self.limits.holders)

    def next_parked(self, limit: bytes, queue: str) -> ModelJob | None:
        """Return the job of a queue that is let in next: of the tenant after the one that had the last turn."""
        order = [job for job in self._parked(limit) if job.queue == queue and not self._is_paused(job)]
        order.sort(key=lambda job: (group_of(job), job.score, job.member))
        last = self.limits.turns.get(limit, {}).get(queue)
        return next((job for job in order if last is None or group_of(job) > last), next(iter(order), None))

    def room_for_parked(self, limit: bytes, queue: str) -> Room:
        """Return what is left when the jobs of a queue run that were let in."""
        jobs = [job for job in self.at(Place.READY) if job.queue == queue and job.let_in == limit]
        going = [job for job in jobs if not self._is_paused(job)]
        return self._room(limit).with_jobs(len(going), sum(job.cost_of(limit) for job in going))

    def _let_in_queue(self, limit: bytes, queue: str) -> tuple[int, float]:
        self._correct_time(limit)
        actual, room, count = self._room(limit), self.room_for_parked(limit, queue), 0
        while job := self.next_parked(limit, queue):
            cost = job.cost_of(limit)
            moment = room.opens_at(cost)
            if moment > self.now:
                return count, moment if count or actual.opens_at(cost) > self.now else inf
            self._leave(job)
            job.place = Place.READY
            job.let_in = limit if any(limit == own for own, _ in job.limits) else None
            self._list_queue(queue)
            self._follow()
            room, count = room.with_jobs(1, cost), count + 1
            if group_of(job) != NO_GROUP:
                self.limits.turns.setdefault(limit, {})[queue] = group_of(job)
        return count, inf

    def _room(self, limit: bytes) -> Room:
        if limit == PAUSED_ID:
            return Room(LimitRule(max_running=0 if self.limits.paused_us is not None else None), self.now, 0)
        rule = self.limits.rules.get(limit[:4], FREE)
        farthest = self.now + rule.burst * (rule.interval_us or 0.0)
        time = max(self.now, min(self.limits.times.get(limit, 0), farthest))
        time = self.limits.charged.get(limit, time)
        return Room(rule, time, self.slots(limit) + self.limits.chosen[limit], self.limits.back_offs.get(limit, 0))

    def _correct_time(self, limit: bytes) -> None:
        """Store a time that was too far ahead for the rule as it is now."""
        if limit in self.limits.times and limit != PAUSED_ID:
            rule = self.limits.rules.get(limit[:4], FREE)
            if self.limits.times[limit] > self.now + rule.burst * (rule.interval_us or 0.0):
                self.limits.times[limit] = self._room(limit).time

    def _charge(self, limit: bytes, cost: int) -> None:
        room = self._room(limit)
        if room.rule.interval_us:
            self.limits.times[limit] = self.limits.charged[limit] = room.with_jobs(1, cost).time
        self.limits.chosen[limit] += 1

    def _in_the_way(self, job: ModelJob) -> Obstacle | None:
        """Return the limit that keeps a job from beginning; None: it may, and its limits count it."""
        if job.has(Flag.LIMITED) and self.limits.paused_us is not None:
            return Obstacle(PAUSED_ID)
        for limit, cost in job.limits:
            moment = self._room(limit).opens_at(cost)
            self._correct_time(limit)
            if moment > self.now:
                return Obstacle(limit, moment, job.drops)
            if self._is_behind_others(job, limit) and job.let_in != limit:
                return Obstacle(limit, 0, job.drops)
        for limit, cost in job.limits:
            self._charge(limit, cost)
        return None

    def _is_behind_others(self, job: ModelJob, limit: bytes) -> bool:
        others = [each for each in self._parked(limit) if (each.queue, group_of(each)) == (job.queue, group_of(job))]
        return any(order_of(each) < order_of(job) for each in others)

    def _check_start(self, limit: bytes, cost: int, lease: bytes) -> None:
        room = self._room(limit)
        self.starts.check(limit, room.rule, at_us=self.now, cost=cost, lease=lease, slots=room.slots)

    def _hold(self, jobs: Sequence[ModelJob], *, ordered: bool = False) -> None:
        """Let claimed jobs take the slots that were counted when they were chosen, or that a person ordered."""
        for job in jobs:
            let_in, job.let_in = job.let_in, None
            if job.is_dropped and let_in:
                self._open(let_in, 0)
            elif job.has(Flag.LIMITED) and not job.is_dropped:
                job.held = list(job.limits)
        self.limits.chosen.clear()
        for job in [] if ordered else jobs:
            for limit, cost in job.held or ():
                self._check_start(limit, cost, job.lease)
        for limit in {limit for job in jobs for limit, _ in job.held or ()}:
            self._open(limit, self._room(limit).opens_at(1))
        self.limits.charged.clear()

    def _free(self, job: ModelJob, *, has_begun: bool) -> None:
        """Free the slots of a job whose claim has ended; one that did not begin gets back what it cost."""
        held, job.held = job.held or [], None
        for limit, cost in held:
            if not has_begun:
                self.starts.forget(limit, job.lease)
            room = self._room(limit)
            if not has_begun and room.rule.interval_us:
                unused = max(0.0, cost * room.rule.interval_us - max(0, self.now - job.claimed_us))
                self.limits.times[limit] = max(self.now, room.time - unused)
        for limit, _ in held:
            self._open(limit, self._room(limit).opens_at(1))

    def _park(self, job: ModelJob, limit: bytes, moment: float) -> None:
        """Let a job wait for a limit; the dispatcher looks at the limit then, or soon."""
        job.place, job.waiting_for = Place.PARKED, limit
        self._open(limit, min(moment, self.now + LOOK_AGAIN_US))

    def _leave(self, job: ModelJob) -> None:
        let_in, job.waiting_for, job.let_in = job.let_in, None, None
        super()._leave(job)
        if let_in:
            self._open(let_in, 0)

    def _end(self, job: ModelJob, how: str, *, keep: bool = False) -> None:
        super()._end(job, how, keep=keep)
        if job.let_in:
            self._open(job.let_in, 0)

    def _open(self, limit: bytes, moment: float) -> None:
        if moment < inf and self._parked(limit):
            self.limits.open[limit] = min(ceil(moment), self.limits.open.get(limit, ceil(moment)))

    def _parked(self, limit: bytes) -> list[ModelJob]:
        return [job for job in self.at(Place.PARKED) if job.waiting_for == limit]

    def _is_paused(self, job: ModelJob) -> bool:
        return bool(job.weight) and (job.queue, job.tenant) in self.turns.paused


def group_of(job: ModelJob) -> bytes:
    """Return the tenant of a job in a fair queue."""
    return (job.tenant or tenant_digest(None)) if job.weight else NO_GROUP


def order_of(job: ModelJob) -> tuple[int, bytes]:
    """Return the order in which jobs are ready, and wait for a limit."""
    return job.score, job.member


def entry_of(job: ModelJob, limit: bytes, kind: bytes) -> bytes:
    """Return the entry of a job that waits for a limit, or was let in; the layout is in `_limits.lua`."""
    place, cost = kind + limit + queue_hash(job.queue) + group_of(job), job.cost_of(limit).to_bytes(2)
    return place + job.score.to_bytes(8) + job.member + cost if kind == b"\0" else place + job.member + cost
