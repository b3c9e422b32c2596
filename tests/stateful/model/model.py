"""Model: every transition in plain Python, from which follows what Redis must hold after each step."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from django_delayq.job.body.codec import with_flags, with_queue
from django_delayq.job.job import Flag
from django_delayq.job.outcome import OutcomeKind
from django_delayq.job.unsent import Debounce, Throttle, UnsentJob
from django_delayq.store.digests import tenant_digest
from tests.stateful.model.model_state import ModelState
from tests.stateful.model.turns import Next
from tests.stateful.model.values import (
    ENDED_FOR_GOOD,
    Ended,
    ExpectedReply,
    Full,
    KeyTaken,
    ModelJob,
    Place,
    digest_of,
    throttle_of,
)

HOUR_US = 3_600_000_000
#: Most silent processes that one promotion removes.
BITE = 50
#: Ready jobs that a claim reads after it could not claim the first ones.
LOOK = 64
#: Queue and tenant -> numbers of the jobs of a batch that are refused, and how many jobs wait.
Refusals = dict[tuple[str, str], tuple[list[int], int]]


class Model(ModelState):
    """The state with its transitions."""

    def enqueue(self, drafts: Sequence[UnsentJob]) -> dict[int, bytes]:
        """Accept a batch, or nothing if it raises `KeyTaken` or `Full`.

        Return the holders of the keys of jobs that were not stored.
        """
        fresh: dict[bytes, UnsentJob] = {}
        refused, full = set[bytes](), Refusals()
        taken: dict[bytes, bytes] = {}
        held: dict[int, bytes] = {}
        opened: dict[bytes, bytes] = {}
        for number, draft in enumerate(drafts):
            raw_id, digest = draft.job.raw_id, digest_of(draft)
            if raw_id in self.withdrawn:
                continue
            if throttle_of(draft) and (first := self._first_of_window(draft, opened)):
                if first != raw_id:
                    held[number] = first
                continue
            holder = taken.get(digest) or self.holder(digest) if digest else None
            if holder is not None and holder != raw_id:
                if draft.unique == "reject":
                    raise KeyTaken(number, holder)
                held[number] = holder
                continue
            if digest:
                taken[digest] = raw_id
            if raw_id in self.jobs or raw_id in fresh or raw_id in refused:
                continue
            if self._refuses(draft, list(fresh.values()), [number], full):
                # The jobs behind it are judged as if it were not in the batch.
                refused.add(raw_id)
                taken.pop(digest or b"", None)
                opened.pop(throttle_of(draft) or b"", None)
            else:
                fresh[raw_id] = draft
        if full:
            raise Full([*full.values()])
        for raw_id, draft in fresh.items():
            job = self._new(draft)
            self.jobs[raw_id] = job
            if job.throttle and isinstance(draft.unique, Throttle):
                self.windows[job.throttle] = raw_id, self.now + draft.unique.window_us
            self.counts["enqueued"] += 1
            self._wait(job, self.now + (draft.delay_us or 0) if draft.due_us is None else draft.due_us)
        self._follow()
        return held

    def _first_of_window(self, draft: UnsentJob, opened: dict[bytes, bytes]) -> bytes | None:
        """Return the job that throttles a draft: itself if it is known; None if it opens a window."""
        raw_id, digest, unique = draft.job.raw_id, throttle_of(draft), draft.unique
        assert digest and isinstance(unique, Throttle)
        first, ends = self.windows.get(digest, (None, 0))
        if raw_id in self.jobs:
            return raw_id
        if digest in opened or self.now < ends <= self.now + 2 * unique.window_us:
            return opened.get(digest, first)
        opened[digest] = raw_id
        return None

    def _new(self, draft: UnsentJob) -> ModelJob:
        job = ModelJob.of(draft)
        if job.has(Flag.HAS_EXTRAS):
            job.use(self.options_of(job.queue))
        return job

    def _refuses(self, draft: UnsentJob, before: Sequence[UnsentJob], numbers: Sequence[int], full: Refusals) -> bool:
        """Note in `full` a job with which, and with those before it, more jobs of its tenant would wait than may."""
        queue, tenant = draft.job.queue, draft.job.tenant
        most = self.options_of(queue).max_waiting
        if tenant is None or most is None:
            return False
        others = sum((each.job.queue, each.job.tenant) == (queue, tenant) for each in before)
        waiting = self.waiting_of(queue, tenant_digest(tenant))
        if waiting + others < most:
            return False
        full.setdefault((queue, tenant), ([], waiting))[0].extend(numbers)
        return True

    def _enters_queue(self, draft: UnsentJob, holder: bytes | None, own: bytes) -> bool:
        """Return whether one more job waits in the queue of a draft if it is stored or replaces the holder."""
        if holder is None:
            return own not in self.jobs and own not in self.withdrawn
        known = self.jobs[holder]
        is_over = holder != own and (own in self.jobs or own in self.withdrawn)
        return known.waits and known.queue != draft.job.queue and not is_over

    def replace(self, drafts: Sequence[UnsentJob]) -> tuple[dict[int, bytes], set[int]]:
        """Accept jobs, or put them in the place of waiting ones that hold their keys.

        Of several with one key the last counts, under the id of the first. Return the holders by position, and the
        positions of those that replaced a job.
        """
        held, replaced = dict[int, bytes](), set[int]()
        positions: dict[bytes, list[int]] = {}
        for number, draft in enumerate(drafts):
            positions.setdefault(digest_of(draft) or b"", []).append(number)
        new, full = list[UnsentJob](), Refusals()
        for digest, same in positions.items():
            draft = drafts[same[-1]]
            is_new = self._enters_queue(draft, self.holder(digest), drafts[same[0]].job.raw_id)
            if is_new and not self._refuses(draft, new, same, full):
                new.append(draft)
        if full:
            raise Full([*full.values()])
        for digest, (first, *others) in positions.items():
            draft, own = drafts[[first, *others][-1]], drafts[first].job.raw_id
            holder = self.holder(digest)
            # A repeated call whose job has given its key up, is dead, or was cancelled.
            is_over = holder != own and (own in self.jobs or own in self.withdrawn)
            raw_id = own if is_over or holder is None else holder
            if raw_id == own:
                held |= dict.fromkeys(others, own)
                replaced.update(others)
            else:
                held |= dict.fromkeys((first, *others), raw_id)
            if is_over:
                continue
            known = self.jobs.get(raw_id)
            place = known and known.place
            if known is None:
                self.counts["enqueued"] += 1
            elif not known.waits:
                continue
            else:
                if raw_id != own:
                    replaced.update((first, *others))
                self._leave(known)
            job = self._new(draft)
            job.member = raw_id + job.member[12:]
            self.jobs[raw_id] = job
            due_us = self.now + (draft.delay_us or 0) if draft.due_us is None else draft.due_us
            if isinstance(draft.unique, Debounce):
                job.first_call = (known and known.first_call) or self.now
                self._wait(job, min(due_us, job.first_call + draft.unique.max_wait_us))
                # The body is made before the first call of the series is known. The first attempt goes by the rank.
                expires_us = job.expires_us
                job.expire_after(due_us)
                job.expires_us = expires_us
            else:
                self._wait(job, due_us)
            was_ready = known is not None and place is not Place.SCHEDULED
            keeps_turn = known and job.member[12] == known.member[12] and not job.has(Flag.EXPIRES)
            if known and was_ready and job.place is Place.READY and keeps_turn:
                job.score = min(job.score, known.score)
            self._follow()
        return held, replaced

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
        self.promoted_at, self.alarm_heard = self.now, False
        self.expired_by = self._expired_by()
        expired = {job.lease for job in self.at(Place.CLAIMED) if job.score <= self.expired_by}
        return moved, len(old), expired

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
    ) -> ExpectedReply:
        """Settle claims whose lease stands, then claim; claims of a blocking exchange are unconfirmed."""
        worker, number = token[:8], int.from_bytes(token[8:])
        first, version = worker not in self.exchanges, self.reply_version
        lost = frozenset(item.lease for item in ended if not self.leased(item.lease))
        stopped = frozenset(item.lease for item in ended if item.lease not in lost and self._is_refused(item))
        settled = [item for item in ended if item.lease not in lost | stopped]
        for item in settled:
            self._settle(self.jobs[item.lease[:12]], item)
        for item in sorted(settled, key=lambda item: item.ending is OutcomeKind.UNSTARTED):
            self._take_key_again(item)
        chosen = self._chosen(queues, strict, want, may_recover) if want else []
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
        self.workers[worker] = self.now
        self.described.add(worker)
        self.exchanges[worker] = number, lost, stopped, [job.lease for job in claims]
        left = (
            {job.queue for job in self._in_order(Place.RECOVERED, queues, strict) if self.is_served(job)}
            if want
            else set()
        )
        if want:
            self.notified -= set(queues)
            self.notified_all = self.notified_all and not self.queues.keys() <= set(queues)
            self.promised = self.promised - set(queues) | left
        more = bool(want and self._ready_in_order(queues, strict, 1))
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
        job.stop_by, job.progress = None, b""
        job.start()
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
                self._take_key_again(item)
                carried_out += 1
        return carried_out

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

    def _chosen(self, queues: Sequence[str], strict: bool, want: int, may_recover: bool) -> list[Next]:
        """Return the jobs that a claim takes; crashed jobs that it may not take are set aside until it finds others."""
        back = [
            (self._sort_key(job, job.score, -1, queues, strict), Next(job))
            for job in self._in_order(Place.RECOVERED, queues, strict)
            if self.is_served(job)
        ][:may_recover]
        claims, aside, look = list[Next](), list[ModelJob](), want
        while not claims:
            for queue in queues:
                ready_jobs = [job for job in self.at(Place.READY) if job.queue == queue]
                if queue in self.paused or not self.options_of(queue).fair:
                    continue
                if not ready_jobs:
                    self.turns.forget(queue)
                for job in ready_jobs:
                    job.is_late = not job.weight
                self._follow()
            ready = self._ready_in_order(queues, strict, look)
            in_order = sorted([*back, *ready[: look + 1]], key=lambda item: item[0])
            seen = [each for _, each in in_order][:look]
            aside = [] if may_recover else [each.job for each in seen if each.job.crash_suspected]
            for job in aside:
                job.place, job.is_late = Place.RECOVERED, False
                self._list_queue(job.queue)
            self._follow()
            for each in seen:
                job = each.job
                alone = job.crash_suspected or job.has(Flag.LARGE)
                if job in aside:
                    continue
                if len(claims) == want or (alone and claims):
                    break
                claims.append(each)
                if alone:
                    break
            look = max(want, LOOK)
            if not aside:
                break
        return claims

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
        ends = expired or item.ending in (OutcomeKind.SUCCEEDED, OutcomeKind.STOPPED)
        return not ends and job.stop_by is not None

    def _settle(self, job: ModelJob, item: Ended) -> None:
        """End a claim. A job that was claimed before it was due waits at least for its time."""
        self._put_back(job, item)
        if job.waits and job.ahead_us is not None and job.ahead_us > self.now:
            job.score = max(job.score, job.ahead_us) if job.place is Place.SCHEDULED else job.ahead_us
            job.place, job.due_us = Place.SCHEDULED, job.score
        if job.place in (Place.READY, Place.RECOVERED):
            self._list_queue(job.queue)
        self._follow()
        if job.place is Place.READY:
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
        if item.ending is OutcomeKind.UNSTARTED:
            job.place, job.score = Place.READY, job.rank
            return None
        job.record = item.record
        if job.put_off(item, self.now):
            return None
        job.ended, job.crash_suspected, job.spared, job.waiting_since = job.ended + 1, False, False, 0
        crash_suspected = item.ending in (OutcomeKind.CRASHED, OutcomeKind.LEASE_EXPIRED)
        if item.ending in ENDED_FOR_GOOD or job.ended >= job.max_attempts:
            job.place, job.score, job.holds_key = Place.DEAD, self.now, False
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

    def _expired_by(self) -> int:
        """Return the time up to which leases have expired; after an outage each is spared once."""
        spared = self.no_reclaim_before
        if spared > self.now:
            return 0
        if self.next_promotion is None or self.now - self.next_promotion <= self.outage_us:
            return self.now
        self.no_reclaim_before = self.now + self.recovery_us
        return spared - self.recovery_us
