"""Schedule handle: one recurring schedule of a task, as it was read."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from typing import NamedTuple, Self, TypeVar

from django_delayq import runtime
from django_delayq.clock import estimated_us, moment
from django_delayq.exceptions import UnknownSchedule
from django_delayq.recurring.rule import occurrences
from django_delayq.store.schedules.definition import Definition
from django_delayq.store.schedules.planting import new_job
from django_delayq.store.schedules.schedules import Schedules
from django_delayq.store.schedules.stored_schedule import StoredSchedule
from django_delayq.store.store import Store, get_store
from django_delayq.task import outbox
from django_delayq.task.handle import JobHandle

T = TypeVar("T")


class ScheduledRun(NamedTuple):
    """What became of a job of a schedule."""

    #: "done", "failed" (a dead letter), "cancelled", "expired", or "skipped" (another one ran, or a limit dropped it).
    outcome: str
    #: How long its last attempt ran, within 0.1 %.
    took: timedelta


@dataclass(slots=True, eq=False, repr=False)
class ScheduleHandle:
    """One recurring schedule of a task, as it was when it was read; `refresh()` reads it again.

    If this process cannot read its definition, `fault` is the reason. It can be paused, resumed and deleted
    nevertheless, and set again; the rest raises `InvalidSchedule`.
    """

    _stored: StoredSchedule
    #: Alias in TASKS whose store has it; None for that of DELAYQ.
    backend: str | None = None
    _: KW_ONLY
    #: The options of its task; None: ON_COMMIT, and all connections.
    _on_commit: bool | None = None
    _database: str | None = None

    def __eq__(self, other: object) -> bool:
        """Whether it is the same schedule, however it was when each was read."""
        return self._key == other._key if isinstance(other, ScheduleHandle) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        unreadable = "" if self._stored.definition else " unreadable"
        return f"<ScheduleHandle {self._stored.full_name}{unreadable}{', paused' if self.is_paused else ''}>"

    @property
    def name(self) -> str:
        """Its name among the schedules of its task."""
        return self._definition.schedule.name

    @property
    def task(self) -> str:
        """The name of its task."""
        return self._definition.job.task

    @property
    def fault(self) -> str | None:
        """Why this process cannot read it, so that its dispatchers plant no job; None if it can."""
        return None if self._stored.fault is None else str(self._stored.fault)

    @property
    def is_paused(self) -> bool:
        """Whether no job of it is planted, because somebody paused it, or because of its failures in a row."""
        return self._stored.is_paused

    @property
    def is_declared(self) -> bool:
        """Whether it is declared in code, so that `set()` and `delete()` refuse it."""
        return self._stored.is_declared

    @property
    def failures(self) -> int:
        """How many of its jobs failed in a row."""
        return self._stored.record.failures

    @property
    def runs(self) -> list[ScheduledRun]:
        """What became of its last 20 jobs, the latest first."""
        return [
            ScheduledRun(run.outcome.name.lower(), timedelta(milliseconds=run.took_ms)) for run in self._stored.runs
        ]

    @property
    def last(self) -> ScheduledRun | None:
        """What became of its last job; None before the first one ended."""
        return next(iter(self.runs), None)

    @property
    def last_ended_at(self) -> datetime | None:
        """When its last job ended; aware, UTC."""
        ended_us = self._stored.record.last_end_us
        return moment(ended_us) if ended_us else None

    @property
    def job_id(self) -> str | None:
        """The id of the job that waits for the next occurrence; None if none is planted, or if it is paused."""
        return self._stored.waiting_id

    @property
    def running_id(self) -> str | None:
        """The id of its running job, also while that waits for a retry; None if none runs."""
        return self._stored.running_id

    def next(self, count: int = 1) -> list[datetime]:
        """Return its next occurrences, in its time zone and without jitter; fewer if it ends. No round trip."""
        schedule = self._definition.schedule
        after_us = estimated_us(runtime.current().clock)
        found = islice(occurrences(schedule, after_us=after_us), count)
        return [moment(each).astimezone(schedule.zone or UTC) for each in found]

    def refresh(self) -> Self | None:
        """Read it again, and return itself; None if it was deleted. One round trip."""

        def find(schedules: Schedules) -> StoredSchedule:
            [stored] = schedules.find([self._stored.id])
            if stored is None:
                raise LookupError
            return stored

        with suppress(UnknownSchedule):
            self._stored = self._in_its_shard(find)
            return self
        return None

    def pause(self) -> bool:
        """Plant no further job, and cancel the waiting one; a running one goes on. Returns False if it was paused.

        Inside a transaction this is done after the commit, and the reply is about now, as for `resume()` and
        `delete()`. Raises `UnknownSchedule` if it was deleted.
        """
        if self._after_commit(self._pause):
            return not self._known().is_paused
        return self._pause()

    def resume(self) -> bool:
        """Plant jobs again, from the next occurrence on. Returns False if it was not paused.

        Raises `UnknownSchedule` if it was deleted.
        """
        if self._after_commit(self._resume):
            return self._known().is_paused
        return self._resume()

    def delete(self) -> bool:
        """Delete it, and cancel its waiting job; a running one goes on. Returns False if it was deleted before."""
        if self._after_commit(self._delete):
            return self.refresh() is not None
        return self._delete()

    def run_now(self) -> JobHandle:
        """Enqueue one more job of it, after the commit as any other. `overlap` applies to it, the pause does not.

        It has the arguments and options that were read, and no occurrence. Two round trips.
        """
        # Only in the shard of the schedule its overlap is known.
        self._store.layouts.read()
        shard = self._shard
        draft = new_job(self._definition, None, shard=shard)
        draft = replace(draft, on_commit=self._waits_for_commit, database=self._database)
        handle = JobHandle(raw_id=draft.job.raw_id, shard=shard, draft=draft, backend=self.backend)
        outbox.accept([handle])
        return handle

    def _pause(self) -> bool:
        return self._in_its_shard(lambda schedules: schedules.pause_and_cancel(self._stored.id))

    def _resume(self) -> bool:
        return self._in_its_shard(lambda schedules: schedules.resume_schedule(self._stored.id))

    def _delete(self) -> bool:
        def delete(schedules: Schedules) -> bool:
            if not schedules.delete_and_cancel([self._stored.id]):
                raise LookupError
            return True

        try:
            return self._in_its_shard(delete)
        except UnknownSchedule:
            return False

    def _in_its_shard(self, call: Callable[[Schedules], T]) -> T:
        """Make a call in its shard, again if it has moved to another one. Raises `UnknownSchedule`."""
        for _ in range(2):
            shard = self._shard
            try:
                return call(self._store.schedules(shard))
            except LookupError:
                self._store.layouts.read()
                if self._shard == shard:
                    break
        raise self._unknown()

    def _after_commit(self, change: Callable[[], object]) -> bool:
        """Return whether a change waits for the commit of the caller's transactions."""
        waits = outbox.open_transactions(self._database) if self._waits_for_commit else ()
        if waits:
            outbox.after_commit(waits, partial(_unless_deleted, change))
        return bool(waits)

    def _known(self) -> "ScheduleHandle":
        found = self.refresh()
        if found is None:
            raise self._unknown()
        return found

    @property
    def _waits_for_commit(self) -> bool:
        return self._store.config.tasks.on_commit if self._on_commit is None else self._on_commit

    @property
    def _key(self) -> tuple[bytes, str | None]:
        return self._stored.id, self.backend

    @property
    def _shard(self) -> int:
        return self._store.schedule_places.shard(self._stored)

    @property
    def _store(self) -> Store:
        return get_store(self.backend)

    @property
    def _definition(self) -> Definition:
        if self._stored.definition is None:
            assert self._stored.fault is not None
            raise self._stored.fault
        return self._stored.definition

    def _unknown(self) -> UnknownSchedule:
        return UnknownSchedule(f"the schedule {self._stored.full_name} was deleted")


def _unless_deleted(change: Callable[[], object]) -> None:
    # Another transaction may have deleted it before this one committed.
    with suppress(UnknownSchedule):
        change()
