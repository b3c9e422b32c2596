"""Claiming: the transitions of workers in plain Python: claims, their outcomes, and what is reclaimed of them."""

from collections.abc import Collection, Mapping, Sequence
from math import inf
from typing import Any

from django_delayq.job.job import Flag
from django_delayq.job.outcome import OutcomeKind
from tests.stateful.model.limits import PAUSED_ID, Obstacle
from tests.stateful.model.schedules import Schedules
from tests.stateful.model.turns import Next
from tests.stateful.model.values import ENDED_FOR_GOOD, Ended, ExpectedReply, ModelJob, Place

#: Ready jobs that a claim reads after it could not claim the first ones.
LOOK = 64
#: Most jobs that one claim parks.
MOST_PARKED = 64
#: Endings of a claim whose job did not begin.
NOT_BEGUN = (OutcomeKind.UNSTARTED, OutcomeKind.PAUSED)


class Claiming(Schedules):
    """The state with the transitions of workers."""

    def exchange(
        self,
        token: bytes,
        ended: Sequence[Ended],
        queues: Sequence[str],
        *,
        want: int,
        strict: bool,
        may_recover: bool,
        blocking: bool = False,
        want_limited: int | None = None,
    ) -> ExpectedReply:
        """Settle claims whose lease stands, then claim; claims of a blocking exchange are unconfirmed."""
        worker, number = token[:8], int.from_bytes(token[8:])
        first, version = worker not in self.exchanges, self.reply_version
        lost = frozenset(item.lease for item in ended if not self.leased(item.lease))
        stopped = frozenset(item.lease for item in ended if item.lease not in lost and self._is_refused(item))
        settled = [item for item in ended if item.lease not in lost | stopped]
        for item in settled:
            self._settle(self.jobs[item.lease[:12]], item)
        self._record_runs()
        for item in sorted(settled, key=lambda item: item.ending in NOT_BEGUN):
            self._take_key_again(item)
        most_limited = want if want_limited is None else want_limited
        chosen, parked, passed_over = [], 0, False
        if want:
            chosen, parked, passed_over = self._chosen(queues, strict, want, may_recover, most_limited)
        claims = [each.job for each in chosen]
        for job in claims:
            job.rank, job.place, job.score = job.score, Place.CLAIMED, self.now + self.lease_us
            job.token, job.claimed_us, job.unconfirmed = token, self.now, blocking
            job.stop_by, job.progress, job.ahead_us = None, b"", None
            job.start()
            self._use(job.queue)
        self.turns.charge(chosen, self.at(Place.READY))
        for job in claims:
            job.is_late = False
        self._hold(claims)
        self.workers[worker] = self.now
        self.described.add(worker)
        self.exchanges[worker] = number, lost, stopped, [job.lease for job in claims]
        left = (
            {job.queue for job in self._in_order(Place.RECOVERED, queues, strict) if self.is_served(job)}
            if want and not passed_over
            else set()
        )
        if want:
            self.notified -= set(queues)
            self.notified_all = self.notified_all and not self.queues.keys() <= set(queues)
            self.promised = self.promised - set(queues) | left
        more = bool(want and self._ready_in_order(queues, strict, 1)) or parked >= MOST_PARKED or passed_over
        return ExpectedReply(lost, stopped, more, claims, first, version, bool(left))

    def claim_one(self, token: bytes, raw_id: bytes) -> ModelJob | None:
        """Claim one waiting job, whenever it is due, also of a paused queue."""
        job = self.jobs.get(raw_id)
        if job is None or not job.waits:
            return None
        is_scheduled = job.place is Place.SCHEDULED
        job.rank = self.rank(job, job.score) if is_scheduled else job.score
        job.ahead_us = job.score if is_scheduled and job.score > self.now else None
        self._leave(job)
        job.score, job.has_paid = self.now + self.lease_us, False
        job.token, job.claimed_us, job.unconfirmed = token, self.now, True
        job.stop_by, job.progress, job.is_dropped = None, b"", False
        job.start()
        for limit, cost in job.limits:
            self._charge(limit, cost)
        self._hold([job], ordered=True)
        self._use(job.queue)
        self.workers[token[:8]] = self.now
        self.described.add(token[:8])
        return job

    def repeat(self, worker: bytes) -> ExpectedReply:
        """Return the reply to a repeated exchange: the claims of it that the worker still holds."""
        _, lost, stopped, leases = self.exchanges[worker]
        return ExpectedReply(
            lost, stopped, True, [job for lease in leases if (job := self.leased(lease))], False, self.reply_version
        )

    def heartbeat(
        self, worker: bytes, leases: Sequence[bytes], queues: Collection[str], progress: Mapping[bytes, bytes]
    ) -> tuple[set[bytes], dict[bytes, int]]:
        """Extend leases, keep their queues listed, store progress. Return lost leases, and stops with the time left."""
        self.workers[worker] = self.now
        stops = {}
        for lease in leases:
            if job := self.leased(lease):
                job.score, job.unconfirmed = self.now + self.lease_us, False
                job.progress = progress.get(lease, job.progress)
                if job.stop_by is not None:
                    stops[lease] = max(0, job.stop_by - self.now)
        for queue in queues:
            self._use(queue)
        return {lease for lease in leases if not self.leased(lease)}, stops

    def stop(self, raw_id: bytes, grace_us: int) -> bool:
        """Ask a running job to stop."""
        job = self.jobs.get(raw_id)
        if job is None or job.place is not Place.CLAIMED:
            return False
        job.stop_by = self.now + grace_us
        return True

    def cancel_blocking(self, queues: Sequence[str]) -> None:
        """Claim nothing for a cancelled blocking exchange; its notification is sent again."""
        self.notified -= {job.queue for job in (*self.at(Place.READY), *self.at(Place.RECOVERED))}.intersection(queues)

    def reclaim(self, items: Sequence[Ended]) -> int:
        """Reclaim jobs whose same lease is still expired. Return their number."""
        carried_out = 0
        for item in items:
            job = self.leased(item.lease)
            stops = item.ending is OutcomeKind.STOPPED
            may_be_spared = job is not None and (job.unconfirmed or not item.spared)
            if job and job.score <= self.now and (job.stop_by is not None) == stops and (stops or may_be_spared):
                self._settle(job, item)
                self._record_runs()
                self._take_key_again(item)
                carried_out += 1
        return carried_out

    def _chosen(
        self, queues: Sequence[str], strict: bool, want: int, may_recover: bool, most_limited: int
    ) -> tuple[list[Next], int, bool]:
        """Return the jobs that a claim takes, how many it parked, and whether it passed a crashed one over.

        Crashed jobs that it may not take are set aside, and those that a limit keeps from beginning are parked, until
        it finds others.
        """
        claims, aside, parked, look, passed_over = list[Next](), list[ModelJob](), 0, want, False
        self.begun.clear()
        while not claims:
            back = [
                (self._sort_key(job, job.score, -1, queues, strict), Next(job))
                for job in self._in_order(Place.RECOVERED, queues, strict)
                if self.is_served(job)
            ][:may_recover]
            self._begin_late_turns(queues)
            ready = self._ready_in_order(queues, strict, look)
            in_order = sorted([*back, *ready[: look + 1]], key=lambda item: item[0])
            seen = [each for _, each in in_order][:look]
            aside = [] if may_recover else [each.job for each in seen if each.job.crash_suspected]
            to_look_at = [each for each in seen if each.job not in aside]
            to_park, passed_over = self._take_from(to_look_at, claims, want, most_limited, MOST_PARKED - parked)
            for job in aside:
                job.place, job.is_late = Place.RECOVERED, False
                self._list_queue(job.queue)
            for job, obstacle in to_park:
                self._leave(job)
                self._park(job, obstacle.limit, obstacle.moment)
            self._follow()
            parked, look = parked + len(to_park), max(want, LOOK)
            if not aside and not to_park or parked >= MOST_PARKED:
                break
        return claims, parked, passed_over

    def _take_from(
        self, seen: Sequence[Next], claims: list[Next], want: int, most_limited: int, most_parked: int
    ) -> tuple[list[tuple[ModelJob, Obstacle]], bool]:
        """Add the jobs that may be claimed; return those that must wait for a limit, and until when.

        Returns also whether a crashed job was passed over, because no more jobs with limits may be claimed.
        """
        waiting, passed_over = list[tuple[ModelJob, Obstacle]](), False
        for each in seen:
            job = each.job
            alone = job.crash_suspected or job.has(Flag.LARGE)
            limited = sum(other.job.has(Flag.LIMITED) for other in claims)
            is_beyond = job.has(Flag.LIMITED) and limited >= most_limited
            if len(claims) == want or (alone and claims and not is_beyond):
                break
            if job.has(Flag.LIMITED) and len(waiting) == most_parked:
                break
            if is_beyond:
                passed_over = passed_over or job.place is Place.RECOVERED
                continue
            in_the_way = self._in_the_way(job)
            job.is_dropped = in_the_way is not None and in_the_way.drops
            if in_the_way and not job.is_dropped:
                waiting.append((job, in_the_way))
                continue
            claims.append(each)
            if alone:
                break
        return waiting, passed_over

    def _begin_late_turns(self, queues: Sequence[str]) -> None:
        """Give turns to jobs of fair queues that have none."""
        for queue in queues:
            ready_jobs = [job for job in self.at(Place.READY) if job.queue == queue]
            if queue in self.paused or not self.options_of(queue).fair:
                continue
            if not ready_jobs:
                self.turns.forget(queue)
            for job in ready_jobs:
                job.is_late = not job.weight
            self._follow()

    def _ready_in_order(self, queues: Sequence[str], strict: bool, want: int) -> list[tuple[Any, Next]]:
        """Return the ready jobs in the order of claims: the n-th of a fair queue stands where its n-th rank does."""
        found = list[tuple[Any, Next]]()
        for queue in queues:
            ready = [job for job in self._in_order(Place.READY, queues, strict) if job.queue == queue]
            jobs = self.turns.order(ready, want + 1) if self.options_of(queue).fair else list(map(Next, ready))
            ranks = [job.score for job in ready if self.is_served(job)]
            for number, each in enumerate(jobs):
                found.append((self._sort_key(each.job, ranks[number], number, queues, strict), each))
        return sorted(found, key=lambda item: item[0])

    def _sort_key(self, job: ModelJob, rank: int, number: int, queues: Sequence[str], strict: bool) -> Any:
        place = queues.index(job.queue)
        return (place if strict else 0, rank, place, number)

    def _in_order(self, place: Place, queues: Sequence[str], strict: bool) -> list[ModelJob]:
        jobs = [job for job in self.at(place) if job.queue in queues and job.queue not in self.paused]
        return self._ordered(jobs, queues, strict)

    def _ordered(self, jobs: list[ModelJob], queues: Sequence[str], strict: bool) -> list[ModelJob]:
        order = {queue: place for place, queue in enumerate(queues)}
        by_member = sorted(jobs, key=lambda job: (job.score, order[job.queue], job.place == Place.READY, job.member))
        return sorted(by_member, key=lambda job: order[job.queue]) if strict else by_member

    def _is_refused(self, item: Ended) -> bool:
        """Return whether the job was asked to stop, so that it may only be settled as done, stopped or expired."""
        job = self.jobs[item.lease[:12]]
        expired = item.ending is OutcomeKind.EXPIRED and not (job.expiry and job.expiry.dead)
        ends = expired or item.ending in (OutcomeKind.SUCCEEDED, OutcomeKind.STOPPED, OutcomeKind.DROPPED)
        return not ends and job.stop_by is not None

    def _settle(self, job: ModelJob, item: Ended) -> None:
        """End a claim. A job that was claimed before it was due waits at least for its time."""
        is_spared = item.spared and item.ending is OutcomeKind.LEASE_EXPIRED
        self._free(job, has_begun=item.ending not in NOT_BEGUN and not is_spared)
        self._put_back(job, item)
        if job.waits and job.ahead_us is not None and job.ahead_us > self.now:
            job.score = max(job.score, job.ahead_us) if job.place is Place.SCHEDULED else job.ahead_us
            job.place, job.due_us = Place.SCHEDULED, job.score
        if job.place in (Place.READY, Place.RECOVERED):
            self._list_queue(job.queue)
        elif job.place is Place.PARKED:
            self._park(job, PAUSED_ID, inf)
        self._follow()
        if job.place in (Place.READY, Place.PARKED):
            self.turns.refund(job)

    def _take_key_again(self, item: Ended) -> None:
        """Let a job that gave its key up at its start, and waits again, hold it, unless another one does."""
        job = self.jobs.get(item.lease[:12])
        if job and job.waits and job.until_start and job.digest and self.holder(job.digest) is None:
            job.holds_key = True

    def _put_back(self, job: ModelJob, item: Ended) -> None:
        if item.ending is OutcomeKind.STOPPED:
            return self._end(job, "cancelled", keep=True)
        if item.ending is OutcomeKind.SUCCEEDED:
            return self._end(job, "done", keep=True)
        if item.ending is OutcomeKind.EXPIRED and not (job.expiry and job.expiry.dead):
            return self._end(job, "expired", keep=True)
        if item.spared and item.ending is OutcomeKind.LEASE_EXPIRED:
            job.record, job.spared = item.record, True
            job.place, job.score = Place.RECOVERED if job.crash_suspected else Place.READY, job.rank
            return None
        if item.ending is OutcomeKind.DROPPED:
            return self._end(job, "dropped", keep=True)
        if item.ending in NOT_BEGUN:
            is_parked = item.ending is OutcomeKind.PAUSED and self.limits.paused_us is not None
            job.place, job.score = Place.PARKED if is_parked else Place.READY, job.rank
            return None
        job.record = item.record
        if job.put_off(item, self.now):
            return None
        job.ended, job.crash_suspected, job.spared, job.waiting_since = job.ended + 1, False, False, 0
        crash_suspected = item.ending in (OutcomeKind.CRASHED, OutcomeKind.LEASE_EXPIRED)
        if item.ending in ENDED_FOR_GOOD or job.ended >= job.max_attempts:
            job.place, job.score, job.holds_key = Place.DEAD, self.now, False
            self._run_ended(job, "dead")
        elif item.ending in (OutcomeKind.INTERRUPTED, OutcomeKind.LEASE_EXPIRED):
            job.place, job.score, job.crash_suspected = (
                Place.RECOVERED if crash_suspected else Place.READY,
                job.rank,
                crash_suspected,
            )
        else:
            job.place, job.score = Place.SCHEDULED, self.now + item.delay_us
            job.due_us = job.score
            job.crash_suspected = crash_suspected
        return None
