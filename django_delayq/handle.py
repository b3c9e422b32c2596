"""JobHandle: one job as its enqueuer sees it, before and after it is sent."""

from datetime import datetime, timedelta
from time import monotonic

from django_delayq.clock import moment
from django_delayq.conf import get_config
from django_delayq.draft import Draft
from django_delayq.job import Job, State
from django_delayq.job_id import from_text, to_text
from django_delayq.store.inspection import Inspection
from django_delayq.store.intake import Receipt
from django_delayq.store.operations import Operations
from django_delayq.store.store import get_store

_HAS_DUE = (State.SCHEDULED, State.READY, State.CLAIMED)


class JobHandle:
    """A job by its id. What it tells is as of the last look; `refresh()` looks again.

    Until it is sent (after the commit of a transaction, by default) the job lives in this handle only: state `unsent`.
    """

    def __init__(self, *, raw_id: bytes, shard: int, draft: Draft | None = None) -> None:
        self._raw_id = raw_id
        self._shard = shard
        #: What is still to be sent; None once it is sent, or cancelled before.
        self.draft = draft
        #: None: not looked up yet.
        self._state: State | None = State.UNSENT if draft else None
        self._due_us: int | None = None
        self._job: Job | None = draft.job if draft else None
        #: False where `key` was held: this is then the holder's handle. Known once the job is sent.
        self.created = True

    @property
    def id(self) -> str:
        """The job's id: below 64 characters, good for ever, known before the job is sent."""
        return to_text(self._raw_id, self._shard)

    @property
    def state(self) -> State:
        """Where the job was at the last look."""
        return self._looked()._state or State.GONE

    @property
    def due(self) -> datetime | None:
        """When the job runs or became ready, at the last look; aware, UTC. None while unsent, and once it has ended."""
        due_us = self._looked()._due_us
        return moment(due_us) if due_us is not None else None

    @property
    def job(self) -> Job | None:
        """Task, arguments and options, where they are known."""
        return self._looked()._job

    def refresh(self) -> "JobHandle":
        """Look the job up again; returns this handle. One or two round trips; none while it is unsent."""
        if self._state is State.UNSENT:
            return self
        if self._shard >= get_store().config.shards:
            self._state, self._due_us = State.GONE, None
            return self
        known = self._job
        found = self._inspection.find(
            self._raw_id, queue=known.queue if known else "default", member=known.member if known else b""
        )
        self._state, self._job = found.state, found.job or known
        self._due_us = found.moment_us if found.state in _HAS_DUE else None
        return self

    def cancel(self) -> bool:
        """Withdraw the job. True: it never ran and never will. False: too late, it runs, has ended, or is dead."""
        if self._state is State.UNSENT:
            self.draft, self._state = None, State.GONE
            return True
        cancelled = self._shard < get_store().config.shards and self._operations.cancel(self._raw_id)
        self._state, self._due_us = (State.GONE, None) if cancelled else (None, None)
        return cancelled

    def reschedule(self, *, delay: float | timedelta | None = None, at: datetime | None = None) -> bool:
        """Give the job another time: seconds or timedelta from now, or an aware datetime. False: too late.

        Raises `InvalidDelay`, `InvalidMoment`; TypeError unless exactly one is given.
        """
        if delay is None and at is None:
            raise TypeError("reschedule() needs delay= (seconds or timedelta) or at= (aware datetime)")
        delay_us, due_us = get_config().tasks.check_time(delay=delay, at=at)
        if self.draft is not None:
            self.draft = self.draft.timed(delay_us=delay_us, due_us=due_us, called_at=monotonic())
            self._job = self.draft.job
            return True
        if self._shard >= get_store().config.shards:
            return False
        # None is "no delay": at once.
        moved_us = self._operations.reschedule(self._raw_id, delay_us=delay_us or 0, due_us=due_us)
        self._state = None
        return moved_us is not None

    def mark_sent(self, receipt: Receipt, number: int) -> None:
        """Take down that the store accepted the draft as number `number` of a batch."""
        self.draft = None
        if number in receipt.held:
            self._raw_id, self.created, self._state, self._job = receipt.held[number], False, None, None
        else:
            self._due_us = receipt.due_us[number]
            self._state = State.SCHEDULED if self._due_us > receipt.now_us else State.READY

    def __repr__(self) -> str:
        return f"<JobHandle {self.id} {self._state or 'not looked up'}>"

    def _looked(self) -> "JobHandle":
        return self.refresh() if self._state is None else self

    @property
    def _inspection(self) -> Inspection:
        return get_store().inspection(self._shard)

    @property
    def _operations(self) -> Operations:
        return get_store().operations(self._shard)


def get_job(job_id: str | None) -> JobHandle | None:
    """Return the handle of a job by its id, in any state but gone; None for any other text. One or two round trips."""
    place = from_text(job_id)
    if place is None:
        return None
    handle = JobHandle(raw_id=place[0], shard=place[1])
    return None if handle.state is State.GONE else handle
