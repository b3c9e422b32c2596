"""Model: every transition in plain Python, from which follows what Redis must hold after each step."""

from collections.abc import Sequence

from django_delayq.job.attempts import AttemptHistory
from django_delayq.job.body.codec import with_flags, with_queue
from django_delayq.job.job import Flag
from django_delayq.store.digests import tenant_digest
from tests.stateful.model.claiming import Claiming
from tests.stateful.model.enqueueing import Enqueueing
from tests.stateful.model.values import KeyTaken, Place

HOUR_US = 3_600_000_000
#: Most silent processes that one promotion removes.
BITE = 50


class Model(Enqueueing, Claiming):
    """The state with all transitions: those of dispatchers and people are here."""

    def promote(self, dispatcher: bytes, queues: Sequence[str], limit: int) -> tuple[int, int, set[bytes]]:
        """Move due jobs and remove what is old. Return jobs moved, dead letters removed, expired leases."""
        due = sorted((jobs for queue in queues if (jobs := self.due(queue))), key=lambda jobs: jobs[0].score)
        moved, share = 0, max(1, limit // max(1, len(due)))
        for jobs in due:
            for job in jobs[: min(share, limit - moved)]:
                job.place, job.score = Place.READY, self.rank(job, job.score)
                self._list_queue(job.queue)
                moved += 1
        self._follow()
        for queue in self.pauses_ending(self.now).intersection(queues):
            del self.paused[queue]
        self._remove_queues(queues)
        gone = sorted((seen, worker) for worker, seen in self.workers.items() if seen <= self.now - HOUR_US)
        for _, worker in gone[:BITE]:
            del self.workers[worker]
            self.exchanges.pop(worker, None)
            self.described.discard(worker)
        seen = {code: at for code, at in self.dispatchers.items() if at > self.now - HOUR_US}
        self.dispatchers = {**seen, dispatcher: self.now}
        dead = sorted(self.at(Place.DEAD), key=lambda job: (job.score, job.raw_id))
        too_many = len(dead) - self.dead_max_count
        old = [job for n, job in enumerate(dead) if n < too_many or job.score <= self.now - self.dead_max_age_us]
        for job in old:
            self._end(job, "trimmed")
        self.windows = {digest: window for digest, window in self.windows.items() if window[1] > self.now}
        self._end_limits()
        self.name_schedules()
        self.promoted_at, self.alarm_heard = self.now, False
        self.expired_by = self._expired_by()
        expired = {job.lease for job in self.at(Place.CLAIMED) if job.score <= self.expired_by}
        return moved, len(old), expired

    def cancel(self, raw_id: bytes, *, token: bytes = b"", may_arrive: bool = False) -> bool:
        """End a waiting job; a repeated call with the same token has the same result."""
        job = self.jobs.get(raw_id)
        if job is not None and job.place is Place.CLAIMED:
            return False
        if may_arrive:
            self.withdrawn[raw_id] = self.now
        if job is None or not job.waits:
            return bool(token) and raw_id + token in self.cancelled
        if token:
            self.cancelled[raw_id + token] = self.now
        if job.throttle and self.windows.get(job.throttle, (None, 0))[0] == raw_id:
            del self.windows[job.throttle]
        self._end(job, "cancelled", keep=True)
        self._record_runs()
        self._follow()
        return True

    def reschedule(self, raw_id: bytes, due_us: int) -> int | None:
        """Give a waiting job another time."""
        job = self.jobs.get(raw_id)
        if job is None or not job.waits:
            return None
        if due_us > self.now:
            flags = Flag(job.member[13]) | Flag.DELAYED
            job.member, job.body = job.member[:13] + bytes((flags,)), with_flags(job.body, flags)
        self._leave(job)
        self._wait(job, due_us)
        self._follow()
        return job.due_us

    def move(self, raw_id: bytes, queue: str) -> bool:
        """Give a waiting job another queue."""
        job = self.jobs.get(raw_id)
        if job is None or not job.waits:
            return False
        place = job.place
        self._leave(job)
        job.queue, job.body, job.place = queue, with_queue(job.body, queue), place
        if place is Place.PARKED:
            job.place = Place.READY
        if job.tenant is not None:
            job.use(self.options_of(queue))
        self._follow()
        if job.place is not Place.SCHEDULED:
            self._list_queue(queue)
        return True

    def requeue_evenly(
        self, letters: Sequence[tuple[bytes, int]], name: bytes, length: int, left: int, *, first: bool
    ) -> list[int]:
        """Revive dead letters over a spread; each takes a place, also if it is not revived (0)."""
        dead = [self.jobs[raw_id].place is Place.DEAD if raw_id in self.jobs else False for raw_id, _ in letters]
        if not any(dead):
            return [0] * len(letters)
        start, places, taken, callers = self.now, max(left, sum(dead)), 0, 1
        began, known_length, known_places, known_taken, known_callers = self.spreads.get(name, (0, 0, 1, 0, 0))
        passed = known_taken * length
        if known_length == length and began + max(length, passed / known_places) > self.now:
            callers = known_callers + first
            if places <= known_places:
                start, places, taken = max(began, self.now - passed // known_places), known_places, known_taken
            else:
                start = max(self.now, began - -passed // known_places)
        dues = []
        for (raw_id, died_us), has_place in zip(letters, dead, strict=True):
            due_us = start + (2 * taken + 1) * length // (2 * places)
            try:
                revived = self.requeue(raw_id, died_us, due_us - self.now) if has_place else None
            except KeyTaken:
                revived = None
            taken += has_place
            dues.append(revived or 0)
        self.spreads[name] = start, length, places, taken, callers
        return dues

    def end_spread(self, name: bytes) -> None:
        """End the part of one caller; the last one forgets the spread."""
        if name in self.spreads:
            *known, callers = self.spreads.pop(name)
            if callers > 1:
                self.spreads[name] = (*known, callers - 1)  # type: ignore[assignment]

    def requeue(self, raw_id: bytes, died_us: int, delay_us: int) -> int | None:
        """Revive a dead letter, unless another job holds its key. Its expiry counts from its due time."""
        job = self._dead(raw_id, died_us)
        if job is None:
            return None
        holder = self.holder(job.digest) if job.digest else None
        if holder and not job.until_start:
            raise KeyTaken(0, holder)
        job.holds_key = job.digest is not None and holder is None
        job.revive()
        self._wait(job, self.now + delay_us, revived=True)
        self._follow()
        return job.due_us

    def undo_requeue(self, raw_id: bytes, died_us: int, left_due_us: int | None) -> bool:
        """Make a revived job that has not begun since a dead letter again."""
        job = self.jobs.get(raw_id)
        history = AttemptHistory.unpack(job.record).history if job else ()
        if job is None or not job.waits or left_due_us is None:
            return False
        # A rank is in ms.
        if job.score != (left_due_us if job.place is Place.SCHEDULED else self.rank(job, left_due_us)):
            return False
        if not history or job.record != AttemptHistory(history=history).pack():
            return False
        job.ended = min(len(history), job.max_attempts)
        job.record = AttemptHistory(ended=job.ended, history=history).pack()
        job.place, job.score, job.holds_key, job.waiting_for, job.let_in = Place.DEAD, died_us, False, None, None
        self._record_runs()
        self._follow()
        return True

    def discard(self, raw_id: bytes, died_us: int) -> bool:
        """Drop a dead letter."""
        job = self._dead(raw_id, died_us)
        if job is not None:
            self._end(job, "discarded")
        return job is not None

    def pause(self, queue: str, until_us: int | None = None) -> bool:
        """Stop claims of a queue's jobs, or give its pause another end."""
        known = self.paused.get(queue)
        self.paused[queue] = (known[0] if known else self.now, until_us)
        return self.paused[queue] != known

    def resume(self, queue: str) -> bool:
        """Allow claims of a queue's jobs again."""
        return self.paused.pop(queue, None) is not None

    def pause_tenant(self, queue: str, tenant: str) -> bool:
        """Stop claims of a tenant's jobs."""
        name = queue, tenant_digest(tenant)
        is_new = name not in self.turns.paused
        self.turns.paused.setdefault(name, (self.now, tenant))
        self._follow()
        return is_new

    def resume_tenant(self, queue: str, tenant: str) -> bool:
        """Allow claims of a tenant's jobs again."""
        was_paused = self.turns.paused.pop((queue, tenant_digest(tenant)), None) is not None
        self._follow()
        return was_paused

    def _expired_by(self) -> int:
        """Return the time up to which leases have expired; after an outage each is spared once."""
        spared = self.no_reclaim_before
        if spared > self.now:
            return 0
        if self.next_promotion is None or self.now - self.next_promotion <= self.outage_us:
            return self.now
        self.no_reclaim_before = self.now + self.recovery_us
        return spared - self.recovery_us
