"""Batch: jobs that are sent to one shard in one call, and the way of each that this shard does not store.

While something is left of an older number of shards, a job is sent to the old shard of its routing value first. That
stores it, or knows the holder of its key, only if something of the value is left there; otherwise it is sent on. If the
number of shards has changed, the shard refuses the call, and all jobs are sent where they belong now.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace

from django_delayq.exceptions import JobRefused, KeyHeld, OtherLayout, StoreError, TenantFull
from django_delayq.job.ids import to_text
from django_delayq.job.layout import Layout, Place
from django_delayq.job.unsent import UnsentJob
from django_delayq.signals import announce, has_listener, job_enqueued
from django_delayq.store.enqueue import places_of
from django_delayq.store.shard import TRIES
from django_delayq.store.store import Store
from django_delayq.task import registry
from django_delayq.task.handle import JobHandle

#: The number of no layout.
_NO_LAYOUT = -1


class Batch:
    """Jobs of one shard, stored all or none. While it is in flight its handles have no draft."""

    def __init__(
        self,
        store: Store,
        shard: int,
        handles: list[JobHandle],
        *,
        drafts: Sequence[UnsentJob] | None = None,
        passed: int = 0,
        passed_in: int = 0,
        tries: int = TRIES,
    ) -> None:
        """`drafts` are those of the handles, if these have none any more.

        `passed`: how many of their places have nothing left of their routing values, by the layout `passed_in`.
        """
        self.handles = handles
        self._store, self._shard, self._passed, self._tries = store, shard, passed, tries
        #: Whether any byte of it may have been sent.
        self._sent = False
        self._drafts = [handle.draft for handle in handles if handle.draft] if drafts is None else list(drafts)
        #: Numbers of the jobs that this shard has stored, or that are held there.
        self._kept: Sequence[int] = ()
        #: The batches in which the others are sent on.
        self._rest: list[Batch] = []
        # Read once: another thread may follow a later layout at any time. Before what says whether it has changed.
        layout = store.layout
        self._layout, left = layout.number, list[bytes]()
        if store.layouts.has_followed:
            is_right = not passed or passed_in == layout.number
            for number, handle in enumerate(handles):
                place, routing = _place(self._drafts[number], layout, passed)
                is_right = is_right and place.shard == shard
                left.append(place.left_here(routing))
                self._drafts[number] = _in_shard(self._drafts[number], shard)
                handle.mark_shard(shard)
            # The shard refuses a batch that does not belong there.
            self._layout = layout.number if is_right else _NO_LAYOUT
        self._call = store.enqueue_api(shard).prepare(self._drafts, left=left, layout=self._layout)
        for handle in handles:
            # From now on `cancel()` or `reschedule()` would change a draft that is already packed.
            handle.mark_packed()

    @property
    def accepted(self) -> int:
        """How many of its jobs were accepted."""
        return len(self._kept) + sum(batch.accepted for batch in self._rest)

    def send(self) -> bool:
        """Send it ahead of `accept()`; return False if no connection may be held for it. Raises `StoreError`."""
        # Before the call: an interrupted call may have sent all of it.
        self._sent = True
        self._sent = self._call.send()
        return self._sent

    def accept(self) -> None:
        """Wait until it is stored. Raises `StoreError` and `JobRefused`."""
        self._sent = True
        try:
            result = self._call.result()
        except JobRefused as error:
            raise self._named(error) from None
        except OtherLayout as error:
            if not self._tries:
                raise
            self._store.layouts.follow(error, self._shard)
            # Nothing was stored.
            self._send_on(range(len(self.handles)), passed=0)
            return
        for number, job in result.stored.items():
            self._drafts[number] = replace(self._drafts[number], job=job)
        kept: Sequence[int] = range(len(self.handles))
        if result.to_send_on:
            kept = [number for number in kept if number not in result.to_send_on]
        for number in kept:
            self.handles[number].mark_sent(result, number)
        self._kept = kept
        if result.to_send_on:
            self._send_on(sorted(result.to_send_on), passed=self._passed + 1)

    def _send_on(self, numbers: Iterable[int], *, passed: int) -> None:
        """Send jobs that this shard did not store to others, and wait until they are stored."""
        layout, by_shard = self._store.layout, dict[int, list[int]]()
        for number in numbers:
            by_shard.setdefault(_place(self._drafts[number], layout, passed)[0].shard, []).append(number)
        self._rest = [
            Batch(
                self._store,
                shard,
                [self.handles[number] for number in found],
                drafts=[self._drafts[number] for number in found],
                passed=passed,
                # A later layout names other shards for the job, which were not asked yet.
                passed_in=self._layout,
                tries=self._tries - 1,
            )
            for shard, found in by_shard.items()
        ]
        for batch in self._rest:
            batch.accept()

    def _named(self, error: JobRefused) -> JobRefused:
        """Return the error with the names of what it is about, and the handle of the refused job."""
        if isinstance(error, TenantFull):
            return self._named_full(error)
        job, named = self._drafts[error.index].job, error
        if isinstance(error, KeyHeld):
            holder = to_text(bytes.fromhex(error.holder), self._shard)
            is_of_call = any(draft.job.raw_id.hex() == error.holder for draft in self._drafts)
            why = (
                "is also that of another job of this call"
                if is_of_call
                else f"is held by job {holder}, which has not ended"
            )
            named = KeyHeld(f"key {job.key!r} {why}", holder=holder, index=error.index)
        named.refused = self.handles[error.index]
        return named

    def _named_full(self, error: TenantFull) -> TenantFull:
        job = self._drafts[error.index].job
        named = TenantFull(
            f"tenant {job.tenant!r} has {error.waiting:,} jobs that wait in queue {job.queue!r}, and with this call "
            f"it would have more than the {error.most:,} that the queue's max_waiting allows; enqueue again when "
            f"some have begun, or raise it in DELAYQ['QUEUES']",
            waiting=error.waiting,
            most=error.most,
            indexes=error.indexes,
        )
        named.refused = self.handles[error.index]
        named.all_refused = [self.handles[index] for index in error.indexes]
        named.others = [self._named_full(each) for each in error.others]
        return named

    def announce(self) -> None:
        """Send the signals of its accepted jobs. Most have no receiver; jobs of Django's tasks always have one."""
        heard = has_listener(job_enqueued, logging.DEBUG)
        for number in self._kept:
            handle, job = self.handles[number], self._drafts[number].job
            if handle.created and (heard or job.kind.has_hooks):
                task = registry.find(job.task)
                announce(job_enqueued, task, job=job)
                if task is not None:
                    task.on_enqueued(job)
        for batch in self._rest:
            batch.announce()

    def restore(self, reason: BaseException) -> None:
        """Give the drafts back to their handles, to be sent again, whether or not they were stored."""
        for batch in self._rest:
            batch.restore(reason)
        if self._rest:
            return
        self._call.abandon()
        # Other exceptions (a time limit, Ctrl-C) may be raised at any line.
        refused = isinstance(reason, JobRefused) or (isinstance(reason, StoreError) and not reason.maybe_accepted)
        for number, (handle, draft) in enumerate(zip(self.handles, self._drafts, strict=True)):
            if number not in self._kept:
                handle.mark_unsent(draft, maybe_sent=self._sent and not refused)


def _place(draft: UnsentJob, layout: Layout, passed: int) -> tuple[Place, bytes]:
    """Return the place to which a job is sent behind so many others, and its routing value."""
    places, routing = places_of(draft.job, layout)
    return places[min(passed, len(places) - 1)], routing


def _in_shard(draft: UnsentJob, shard: int) -> UnsentJob:
    return draft if draft.job.shard == shard else replace(draft, job=replace(draft.job, shard=shard))
