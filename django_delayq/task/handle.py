"""JobHandle: one job as its enqueuer sees it, before and after it is sent."""

from datetime import datetime, timedelta
from math import inf
from secrets import token_bytes
from time import monotonic
from typing import Any

from asgiref.sync import sync_to_async

from django_delayq.clock import SECOND_US, duration_us, moment, steady
from django_delayq.exceptions import NoResult, WaitTimeout
from django_delayq.job.ids import from_text, to_text
from django_delayq.job.job import DEFAULT_QUEUE, Job, State
from django_delayq.job.result import Result
from django_delayq.job.unsent import UnsentJob
from django_delayq.store.enqueue import EnqueueResult
from django_delayq.store.operations import Operations
from django_delayq.store.queries.lookup import Lookup
from django_delayq.store.store import Store, get_store

_HAS_DUE = (State.SCHEDULED, State.READY, State.CLAIMED)


class JobHandle:
    """A job by its id. What it tells is as of the last look; `refresh()` looks again.

    Until it is sent (after the commit of a transaction, by default) the job lives in this handle only: state `unsent`.
    """

    def __init__(
        self, *, raw_id: bytes, shard: int, draft: UnsentJob | None = None, backend: str | None = None
    ) -> None:
        self._raw_id = raw_id
        self._shard = shard
        #: Alias in TASKS whose store it is in; None: DELAYQ's.
        self.backend = backend
        #: What is still to be sent; None once it is sent, or cancelled before.
        self.draft = draft
        #: An enqueue of it had no answer: Redis may have it, or get it yet.
        self.maybe_sent = False
        #: Names this handle's `cancel()` in Redis, so that one whose answer was lost can be repeated.
        self._token = b""
        #: None: not looked up yet.
        self._state: State | None = State.UNSENT if draft else None
        self._due_us: int | None = None
        self._job: Job | None = draft.job if draft else None
        self._result: Result | None = None
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

    @property
    def result(self) -> Any:
        """What the task returned, as of the last look; that is kept where `store_result` says so. Raises `NoResult`."""
        looked = self._looked()
        if looked._result is None or looked._state is not State.DONE:
            raise NoResult(
                f"job {self.id} has no result, it is {looked._state}; only jobs that are done have one, "
                f"for as long as store_result= or RESULT_TTL keeps it"
            )
        return looked._result.value

    def wait(self, timeout: float | timedelta | None = None) -> Any:
        """Wait until the job ends, at most so many seconds or a timedelta, and return what the task returned.

        Blocks in Redis and looks once a second whether the job died meanwhile. Raises `WaitTimeout`, and `NoResult` for
        a job that died, was cancelled, keeps no result, or is not sent yet.
        """
        seconds = inf if timeout is None else duration_us(timeout, name="timeout") / SECOND_US
        until = monotonic() + seconds
        while self.refresh()._state in _HAS_DUE and self._keeps_result():
            left = until - monotonic()
            if left <= 0:
                raise WaitTimeout(f"job {self.id} has not ended within {seconds:g} s, it is {self._state}")
            self._store.result_waiter(self._shard).wait(self._raw_id, left)
        return self.result

    def refresh(self) -> "JobHandle":
        """Look the job up again; returns this handle. One or two round trips; none while it is surely unsent."""
        if self._is_surely_unsent:
            return self
        if self._shard >= self._store.config.shards:
            self._state, self._due_us = State.GONE, None
            return self
        known = self._job
        found = self._inspection.find(
            self._raw_id, queue=known.queue if known else DEFAULT_QUEUE, member=known.member if known else b""
        )
        self._state, self._job = found.state, found.job or known
        self._due_us = found.moment_us if found.state in _HAS_DUE else None
        self._result = found.result
        if self.draft is not None and found.state is State.GONE:
            self._state = State.UNSENT
        return self

    def cancel(self) -> bool:
        """Withdraw the job. True: it was waiting, and starts no more. False: too late, it runs, has ended, or is dead.

        May be repeated after a `StoreUnavailable`: True again if it was this handle that cancelled the job. False also
        if nothing proves that a job whose enqueue had no answer has not run. Answered, no `resend()` sends it any more.
        """
        if self._is_surely_unsent:
            self.drop()
            return True
        self._token = self._token or token_bytes(8)
        cancelled = self._shard < self._store.config.shards and self._operations.cancel(
            self._raw_id, token=self._token, may_arrive=self.maybe_sent
        )
        # Only now: unanswered, it is not known whether anybody still wants to send it.
        self.draft = None
        kept = State.CANCELLED if self._keeps_result() else State.GONE
        self._state, self._due_us = (kept, None) if cancelled else (None, None)
        return cancelled

    def reschedule(self, *, delay: float | timedelta | None = None, at: datetime | None = None) -> bool:
        """Give the job another time: seconds or timedelta from now, or an aware datetime. False: too late.

        A job whose enqueue had no answer: True if Redis has it and it waits; else `resend()` sends it for the new time.
        Raises `InvalidDelay`, `InvalidMoment`; TypeError unless exactly one is given.
        """
        if delay is None and at is None:
            raise TypeError("reschedule() needs delay= (seconds or timedelta) or at= (aware datetime)")
        delay_us, due_us = self._store.config.tasks.check_time(delay=delay, at=at)
        if self.draft is not None:
            self.draft = self.draft.rescheduled(delay_us=delay_us, due_us=due_us, called_at=steady())
            self._job = self.draft.job
            if not self.maybe_sent:
                return True
        if self._shard >= self._store.config.shards:
            return False
        # None is "no delay": at once.
        moved_us = self._operations.reschedule(self._raw_id, delay_us=delay_us or 0, due_us=due_us)
        self._state, self._due_us = None, moved_us
        return moved_us is not None

    async def arefresh(self) -> "JobHandle":
        """Do as `refresh()`, from async code."""
        return await sync_to_async(self.refresh)()

    async def acancel(self) -> bool:
        """Do as `cancel()`, from async code."""
        return await sync_to_async(self.cancel)()

    async def areschedule(self, *, delay: float | timedelta | None = None, at: datetime | None = None) -> bool:
        """Do as `reschedule()`, from async code."""
        return await sync_to_async(self.reschedule)(delay=delay, at=at)

    def drop(self) -> None:
        """Give up the draft, which was surely not accepted: nothing sends it any more."""
        self.draft, self._state = None, State.GONE

    def mark_packed(self) -> None:
        """Take down that the draft is on its way: from here on Redis is asked."""
        self.draft, self._state = None, None

    def mark_unsent(self, draft: UnsentJob, *, maybe_sent: bool) -> None:
        """Take back a draft that was not, or not surely, accepted."""
        self.draft, self._state = draft, State.UNSENT
        # For good: the first copy may arrive after the second.
        self.maybe_sent = self.maybe_sent or maybe_sent

    def mark_sent(self, receipt: EnqueueResult, number: int) -> None:
        """Take down that the store accepted the draft as number `number` of a batch."""
        if number in receipt.held:
            self._raw_id, self.created, self._state, self._job = receipt.held[number], False, None, None
        elif self._state is None and self._due_us is None and not self.maybe_sent:
            self._due_us = receipt.due_us[number]
            self._state = State.SCHEDULED if self._due_us > receipt.now_us else State.READY
        else:
            # Somebody looked or changed it while it was on its way, or an earlier copy of it arrived: look again.
            self._state = None

    def __repr__(self) -> str:
        return f"<JobHandle {self.id} {self._state or 'not looked up'}>"

    def _looked(self) -> "JobHandle":
        return self.refresh() if self._state is None else self

    @property
    def _is_surely_unsent(self) -> bool:
        return self._state is State.UNSENT and not self.maybe_sent

    def _keeps_result(self) -> bool:
        return self._job is not None and self._job.result_ttl_us is not None

    @property
    def _store(self) -> Store:
        return get_store(self.backend)

    @property
    def _inspection(self) -> Lookup:
        return self._store.lookup(self._shard)

    @property
    def _operations(self) -> Operations:
        return self._store.operations(self._shard)


def get_job(job_id: str | None, *, backend: str | None = None) -> JobHandle | None:
    """Return the handle of a job by its id, in any state but gone; None for any other text. One or two round trips.

    `backend`: the alias in TASKS that it was enqueued with, where that has a store of its own.
    """
    place = from_text(job_id)
    if place is None:
        return None
    handle = JobHandle(raw_id=place[0], shard=place[1], backend=backend)
    return None if handle.state is State.GONE else handle
