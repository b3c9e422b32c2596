"""Handle: one job as its enqueuer sees it, before and after it is sent."""

from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from math import inf
from secrets import token_bytes
from time import monotonic
from typing import Any

from django_delayq import runtime
from django_delayq.clock import SECOND_US, duration_us, moment
from django_delayq.conf.settings import sharing_alias
from django_delayq.exceptions import JobDropped, JobExpired, NoResult, StoreError, WaitTimeout, see
from django_delayq.job.attempts import NO_ATTEMPTS
from django_delayq.job.ids import to_text
from django_delayq.job.job import DEFAULT_QUEUE, Job, State
from django_delayq.job.progress import Progress
from django_delayq.job.result import JobError, Result
from django_delayq.job.unsent import UnsentJob
from django_delayq.store.client.async_calls import in_thread
from django_delayq.store.enqueue import EnqueueResult
from django_delayq.store.operations.batch import BatchJob
from django_delayq.store.operations.operations import Operations
from django_delayq.store.operations.worker_control import grace_us_of
from django_delayq.store.queries.job_pages import JobRow
from django_delayq.store.queries.result_waiter import wait_for_result, watch_of
from django_delayq.store.store import Store, get_store

_HAS_DUE = (State.SCHEDULED, State.READY, State.CLAIMED)


class JobHandle:
    """A job by its id. Its properties show the last look-up; `refresh()` looks the job up again.

    Until the job is sent (by default after the commit of a transaction) it exists in this handle only, as `unsent`::

        handle = send_reminder.after(days=1).enqueue(user.pk)
        handle.state  # "scheduled"
        handle.cancel()  # True: it will not run
    """

    # The values of most handles are in the class: each in the instance would cost every enqueue 20 ns.
    #: An enqueue had no reply: Redis may have the job, or may still receive it.
    maybe_sent = False
    #: False if the unique key was held, or throttled: this is then the handle of that job. Known once the job is sent.
    created = True
    #: True if the holder waited and, with `unique="replace"` or `Debounce`, got the arguments, options and time of this
    #: enqueue.
    replaced = False
    #: Names the `cancel()` of this handle in Redis, so that it can be repeated after a lost reply.
    _token = b""
    _due_us: int | None = None
    _result: Result | None = None
    _progress: Progress | None = None
    _history, _attempts, _parked_for = NO_ATTEMPTS, 0, ""

    def __init__(
        self, *, raw_id: bytes, shard: int, draft: UnsentJob | None = None, backend: str | None = None
    ) -> None:
        self._raw_id = raw_id
        self._shard = shard
        #: Alias in TASKS whose store has the job; None for the store of DELAYQ, also for an alias that shares it.
        self.backend = None if backend is None or backend == sharing_alias() else backend
        #: The job to send; None once it is sent or cancelled.
        self.draft = draft
        #: None if the job must be looked up.
        self._state: State | None = State.UNSENT if draft else None
        self._job: Job | None = draft.job if draft else None
        self._task = draft.job.task if draft else ""

    @classmethod
    def found(cls, row: JobRow, *, backend: str | None = None) -> "JobHandle":
        """Return the handle of a row that was read, as if it had been looked up."""
        handle = cls(raw_id=row.raw_id, shard=row.shard, backend=backend)
        if not row.is_cut:
            handle._show(row)
        return handle

    @property
    def id(self) -> str:
        """The id of the job: fewer than 64 characters, known before the job is sent.

        Permanent, but for a job with a unique key that waits for a commit: if another job holds the key by then, the
        handle becomes that job's.
        """
        return to_text(self._raw_id, self._shard)

    @property
    def state(self) -> State:
        """The state of the job at the last look-up."""
        return self._known()._state or State.GONE

    @property
    def due(self) -> datetime | None:
        """When the job is or became due; aware, UTC. None while it is unsent, and after its end."""
        return None if (due_us := self._known()._due_us) is None else moment(due_us)

    @property
    def job(self) -> Job | None:
        """The task, arguments and options of the job, if they are known."""
        return self._known()._job

    @property
    def task(self) -> str:
        """The name of the task; "" if the job was never found."""
        return self._known()._task

    @property
    def attempts(self) -> int:
        """Number of attempts that had begun at the last look-up, the running one included; snoozes are none."""
        return self._known()._attempts

    @property
    def snoozes(self) -> int:
        """How often the job had put itself off at the last look-up."""
        return self._known()._history.snoozes

    @property
    def error(self) -> JobError | None:
        """Why the last attempt that ended had no success; None if there is none, or the job is done."""
        known = self._known()
        entry = known._history.history[-1] if known._history.history else None
        if entry is None or known._state is State.DONE:
            return None
        return JobError.of(entry.get("error", ""), entry.get("exception", ""))

    @property
    def progress(self) -> Progress | None:
        """How far the running attempt was at the last look-up; None if none runs, or it reported nothing."""
        return self._known()._progress

    @property
    def waiting_for(self) -> str | None:
        """What kept a ready job from beginning at the last look-up: "limit stripe (4711)", "paused task"; else None."""
        return self._known()._parked_for or None

    @property
    def result(self) -> Any:
        """The return value of the task, if `store_result` keeps it. Raises `NoResult`; `JobExpired` if it expired."""
        known = self._known()
        if known._state is State.EXPIRED:
            raise JobExpired(f"job {self.id} has no result, it is expired: it could not begin in time")
        if known._state is State.DROPPED:
            raise JobDropped(f"job {self.id} has no result, it is dropped: a limit or schedule kept it from beginning")
        if known._result is None or known._state is not State.DONE:
            raise NoResult(f"job {self.id} {self._why_no_result()}")
        return known._result.value

    def wait(self, timeout: float | timedelta | None = None) -> Any:
        """Wait until the job ends, at most `timeout` (seconds or a timedelta), and return the value of the task.

        Blocks in Redis, and checks once a second whether the job is dead. Raises `WaitTimeout`, and `NoResult` if the
        job is dead, cancelled, expired (`JobExpired`), or unsent, or its result is not kept.
        """
        seconds = inf if timeout is None else duration_us(timeout, name="timeout") / SECOND_US
        until = monotonic() + seconds
        while self._must_wait(until, seconds):
            wait_for_result(self._store.shards[self._shard], self._raw_id, until - monotonic())
        return self.result

    async def aresult(self, timeout: float | timedelta | None = None) -> Any:
        """Do what `wait()` does, from async code: thousands of jobs may be awaited at once, on four connections.

        An event loop looks at all jobs that it awaits five times a second, and more often at first.
        """
        seconds = inf if timeout is None else duration_us(timeout, name="timeout") / SECOND_US
        until = monotonic() + seconds
        while (ended := await in_thread(self._ended, until, seconds)) is None:
            watch, left = (
                watch_of(self._store.shards[self._shard], self._store.lookup(self._shard)),
                until - monotonic(),
            )
            await watch.wait(self._raw_id, None if left == inf else left)
        return ended[0]

    def _ended(self, until: float, seconds: float) -> tuple[Any] | None:
        """Look the job up; return its result, which may be None, in a tuple, or None if it may still come."""
        # In one step: between two, another call could change the handle, and the property would look it up in the loop.
        return None if self._must_wait(until, seconds) else (self.result,)

    def _must_wait(self, until: float, seconds: float) -> bool:
        """Look the job up; return whether its result may still come. Raises `WaitTimeout` after `until`."""
        if self.refresh()._state not in _HAS_DUE or not self._keeps_result():
            return False
        if until <= monotonic():
            raise WaitTimeout(f"job {self.id} has not ended within {seconds:g} s, it is {self._state}{self._cure()}")
        return True

    def refresh(self) -> "JobHandle":
        """Look the job up again; returns this handle. One or two round trips, none while it is surely unsent."""
        if self._is_surely_unsent:
            return self
        if not self._store.has_shard(self._shard):
            self._state, self._due_us = State.GONE, None
            return self
        known = self._job
        found = self._store.find(
            self._raw_id,
            self._shard,
            queue=known.queue if known else DEFAULT_QUEUE,
            member=known.member if known else b"",
        )
        self._shard = found.shard
        self._show(found)
        self._job = found.job or known
        if self.draft is not None and found.state is State.GONE:
            self._state = State.UNSENT
        return self

    def cancel(self) -> bool:
        """Cancel the job. Returns True if it was waiting and will not run, False if it runs, has ended, or is dead.

        May be repeated after a `StoreUnavailable`: True again if this handle cancelled the job. If the enqueue had no
        reply, False also means that the job may have run. After a reply `resend()` does not send the job any more.
        """
        if self._is_surely_unsent:
            self.drop()
            return True
        self._token = self._token or token_bytes(8)
        cancelled = self._cancel() or self._has_moved() and self._cancel()
        # Only after the reply: without one the caller may still send the job.
        self.draft = None
        kept = State.CANCELLED if self._keeps_result() else State.GONE
        self._state, self._due_us = (kept, None) if cancelled else (None, None)
        return cancelled

    def _cancel(self) -> bool:
        job = BatchJob(raw_id=self._raw_id)
        return self._store.has_shard(self._shard) and all(
            effect.done
            for effect in self._operations.waiting_jobs.cancel([job], token=self._token, may_arrive=self.maybe_sent)
        )

    def stop(self, grace: float | timedelta = 10) -> bool:
        """Stop the job: cancel it if it waits, else ask its code to stop within `grace` (seconds or a timedelta).

        Within a second its code sees `current_job().should_stop`; a coroutine is cancelled. After `grace` a child
        process is killed, while a thread runs on. The job ends as cancelled and is not retried; if its code returns
        nevertheless, it is done, unless the result cannot be stored. Returns False if it has ended or is dead. May be
        repeated; the last `grace` counts. Raises `InvalidDelay` if `grace` is negative or longer than a day.
        """
        grace_us = grace_us_of(grace)
        # A waiting job may begin, and a running one may be retried, between the two.
        for _ in range(3):
            if self.cancel():
                return True
            if self._store.has_shard(self._shard) and self._operations.workers.stop(self._raw_id, grace_us=grace_us):
                self._state = None
                return True
            if self.refresh()._state not in _HAS_DUE:
                return False
        return False

    def reschedule(self, *, delay: float | timedelta | None = None, at: datetime | None = None) -> bool:
        """Move the job to another time: seconds or a timedelta from now, or an aware datetime. False if it is too late.

        If the enqueue had no reply: True if Redis has the job and it waits; otherwise `resend()` sends it for the new
        time. Raises `InvalidDelay`, `InvalidMoment`, and TypeError unless exactly one argument is given.
        """
        if delay is None and at is None:
            raise TypeError("reschedule() needs delay= (seconds or timedelta) or at= (aware datetime)")
        delay_us, due_us = self._store.config.tasks.check_time(delay=delay, at=at)
        if self.draft is not None:
            called_at = runtime.current().clock.steady()
            self.draft = self.draft.rescheduled(delay_us=delay_us, due_us=due_us, called_at=called_at)
            self._job = self.draft.job
            if not self.maybe_sent:
                return True
        if not self._store.has_shard(self._shard):
            return False
        # A delay of None means at once.
        job = BatchJob(raw_id=self._raw_id, delay_us=delay_us or 0, due_us=due_us)
        [effect] = self._operations.waiting_jobs.reschedule([job])
        if not effect.done and self._has_moved():
            [effect] = self._operations.waiting_jobs.reschedule([job])
        if effect.error is not None:
            raise effect.error
        self._state, self._due_us = None, effect.due_us
        return effect.done

    async def arefresh(self) -> "JobHandle":
        """Do what `refresh()` does, from async code."""
        return await in_thread(self.refresh)

    async def acancel(self) -> bool:
        """Do what `cancel()` does, from async code."""
        return await in_thread(self.cancel)

    async def astop(self, grace: float | timedelta = 10) -> bool:
        """Do what `stop()` does, from async code."""
        return await in_thread(self.stop, grace)

    async def areschedule(self, *, delay: float | timedelta | None = None, at: datetime | None = None) -> bool:
        """Do what `reschedule()` does, from async code."""
        return await in_thread(self.reschedule, delay=delay, at=at)

    def drop(self) -> None:
        """Forget a draft that was surely not accepted, so that nothing sends it."""
        self.draft, self._state = None, State.GONE

    def mark_shard(self, shard: int) -> None:
        """Record the shard to which the draft is sent. It is another one if the number of shards has changed since."""
        self._shard = shard
        if self._job is not None and self._job.shard != shard:
            self._job = replace(self._job, shard=shard)

    def mark_packed(self) -> None:
        """Record that the draft is in a batch: from now on the job is looked up in Redis."""
        self.draft, self._state = None, None

    def mark_unsent(self, draft: UnsentJob, *, maybe_sent: bool) -> None:
        """Restore a draft that was not, or not surely, accepted."""
        self.draft, self._state = draft, State.UNSENT
        # Never reset: the first copy may arrive after the second.
        self.maybe_sent = self.maybe_sent or maybe_sent

    def mark_sent(self, result: EnqueueResult, number: int) -> None:
        """Record that the store accepted the draft as number `number` of a batch."""
        if number in result.held:
            self._raw_id, self.created, self._state, self._job = result.held[number], False, None, None
            self.replaced = number in result.replaced
        elif self._state is None and self._due_us is None and not self.maybe_sent:
            self._due_us, self._job = result.due_us[number], result.stored.get(number, self._job)
            self._state = State.SCHEDULED if self._due_us > result.now_us else State.READY
        else:
            # The job was looked up or changed while it was in flight, or an earlier copy arrived: look it up again.
            self._state = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, JobHandle):
            return NotImplemented
        return (self._raw_id, self._shard, self.backend) == (other._raw_id, other._shard, other.backend)

    def __hash__(self) -> int:
        """Raises TypeError while the id may still become that of another job."""
        draft = self.draft
        if draft is not None and draft.job.key is not None and draft.unique != "reject":
            raise TypeError(
                f"job {self.id} is not sent yet, and gets another id if its key is held by then: put its handle into "
                f"a set or a dict after the commit, or keep it in a list"
            )
        return hash(self._raw_id)

    def __repr__(self) -> str:
        return f"<JobHandle {self.id} {self._state or 'not looked up'}>"

    def _show(self, found: JobRow) -> None:
        self._state, self._job, self._result = found.state, found.job, found.result
        self._task, self._progress, self._parked_for = found.task or self._task, found.progress, found.parked_for
        ran = found.state is State.CLAIMED or (found.result is not None and found.result.started_us is not None)
        self._history, self._attempts = found.attempts, found.attempts.ended + ran
        self._due_us = found.moment_us if found.state in _HAS_DUE else None

    def _known(self) -> "JobHandle":
        return self.refresh() if self._state is None else self

    @property
    def _is_surely_unsent(self) -> bool:
        return self._state is State.UNSENT and not self.maybe_sent

    def _has_moved(self) -> bool:
        """Return whether the job is in another shard now, where its dead letter was retried or its commit sent it."""
        before = self._shard
        return self._store.layout.has_changed and self.refresh()._shard != before

    def _keeps_result(self) -> bool:
        return self._job is not None and self._job.result_ttl_us is not None

    def _cure(self) -> str:
        """Return the end of a sentence that names the cure if no worker serves the queue of the job."""
        queue, lease_us = self._job.queue if self._job else DEFAULT_QUEUE, self._store.config.worker.lease_us
        with suppress(StoreError):
            if not self._store.snapshot().is_served(queue, lease_us=lease_us):
                part = see("troubleshooting#nothing-runs")
                return f", and no worker serves its queue {queue!r}: start manage.py run_worker. {part}"
        return ""

    def _why_no_result(self) -> str:
        if self._state is State.DEAD:
            return "has no result, it is dead; job.error says why"
        if self._state in (*_HAS_DUE, State.UNSENT) and self._job is not None and not self._keeps_result():
            cure = "declare its task with store_result=True, or enqueue it with using(store_result=True)"
            return f"keeps no result, it is {self._state}; {cure}"
        if self._state is State.UNSENT:
            return (
                "has no result, it is unsent: its transaction has not committed, or Redis failed. In a TestCase none "
                f"commits: use DelayQMixin. {see('troubleshooting#a-job-stays-unsent')}"
            )
        kept = "only jobs that are done have one, for as long as store_result= or RESULT_TTL keeps it"
        return f"has no result, it is {self._state}; {kept}"

    @property
    def _store(self) -> Store:
        return get_store(self.backend)

    @property
    def _operations(self) -> Operations:
        return self._store.operations(self._shard)
