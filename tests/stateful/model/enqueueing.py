"""Enqueueing: the transitions of producers in plain Python: jobs are stored, replace others, or are throttled."""

from collections.abc import Sequence

from django_delayq.job.job import Flag
from django_delayq.job.unsent import Debounce, Throttle, UnsentJob
from django_delayq.store.digests import tenant_digest
from tests.stateful.model.limits import Limited
from tests.stateful.model.values import Full, KeyTaken, ModelJob, Place, digest_of, throttle_of

#: Queue and tenant -> numbers of the jobs of a batch that are refused, and how many jobs wait.
Refusals = dict[tuple[str, str], tuple[list[int], int]]


class Enqueueing(Limited):
    """The state with the transitions of producers."""

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
            self._count_enqueued(draft.job)
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
                self._count_enqueued(draft.job)
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
