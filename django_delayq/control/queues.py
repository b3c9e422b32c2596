"""Queues: pause, resume and count the queues of a store, and find their jobs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from time import monotonic
from typing import Any, TypedDict

from django_delayq.clock import moment
from django_delayq.conf.validators import check_name
from django_delayq.control.jobs import Jobs, jobs, until_us
from django_delayq.control.tenants import Tenant, TenantCounts, iter_tenants
from django_delayq.exceptions import InvalidMoment, UnknownQueue
from django_delayq.job.job import State
from django_delayq.store.client.reading import Reading
from django_delayq.store.operations.worker_control import WorkerControl
from django_delayq.store.queries.job_pages import JobPage
from django_delayq.store.queries.snapshot import Pause, QueueState
from django_delayq.store.store import Store, get_store

#: Seconds for which the counts of one read may be returned.
_MAX_AGE = 1.0


class Counts(TypedDict):
    """The jobs of one queue by their state."""

    scheduled: int
    ready: int
    running: int
    failed: int
    #: Those of the ready jobs that a limit, or the pause of their task, keeps from beginning.
    parked: int
    #: Since when the job that is claimed next has been due; None if none is ready.
    oldest: datetime | None


@dataclass(frozen=True, slots=True)
class Queue:
    """One queue of a store, by its name. It reads nothing until a method is called."""

    #: Name of the queue.
    name: str
    #: Alias in TASKS whose store has it; None for that of DELAYQ.
    backend: str | None = None
    #: The counts that it shares with the other queues of one `queues()`.
    shared: "_SharedCounts | None" = field(default=None, repr=False, compare=False)

    def pause(self, *, until: datetime | timedelta | float | None = None, by: str = "code") -> bool:
        """Stop claims of its jobs; running ones continue. Returns False if it was paused so already.

        `until`: an aware datetime, or seconds or a timedelta from now; by default it stays paused until `resume()`. A
        queue that is paused gets the new end. `by` is the name that the admin shows.
        """
        if not isinstance(by, str) or not by:
            raise TypeError(
                f"by must be a text that names who pauses the queue, got {by!r:.80}; leave it out for 'code'"
            )
        store = self._store
        end_us = None if until is None else pause_end_us(until, store)
        self._forget_counts()
        # On every shard, even if the first one was paused.
        return sum(workers.pause(self.name, by=by, until_us=end_us) for workers in _workers(store)) > 0

    def resume(self) -> bool:
        """Allow claims of its jobs again. Returns False if it was not paused."""
        self._forget_counts()
        return sum(workers.resume(self.name) for workers in _workers(self._store)) > 0

    @property
    def paused(self) -> Pause | None:
        """Who paused it, when and until when; None if it is not paused. One round trip."""
        return self._store.snapshot().queues.get(self.name, QueueState()).paused

    def counts(self) -> Counts:
        """Return its jobs by state. Running and failed jobs are not kept by queue, so all of those are read.

        The queues of one `queues()` share a read for at most a second: a second call for the same queue reads again,
        and so does the first call after one of them was changed or its jobs were asked for.
        """
        return self.shared.take(self.name) if self.shared else counts([self.name], backend=self.backend)[self.name]

    def jobs(self, **filters: Any) -> Jobs:
        """Return its jobs that match; the arguments are those of `jobs()` without `queue`."""
        # They may be changed.
        self._forget_counts()
        return jobs(queue=self.name, backend=self.backend, **filters)

    def tenant(self, name: str) -> Tenant:
        """Return one of its tenants. Raises ValueError for a name that no tenant can have."""
        return Tenant(check_name(name, name="tenant"), self.name, self.backend)

    def tenants(self) -> Iterator[tuple[Tenant, TenantCounts]]:
        """Iterate over the tenants that have waiting jobs or are paused, with their counts, in no useful order.

        A round trip for each hundred, and one for each thousand that workers serve.
        """
        return iter_tenants(self.name, self.backend)

    def _forget_counts(self) -> None:
        if self.shared:
            self.shared.forget()

    @property
    def _store(self) -> Store:
        return get_store(self.backend)


class _SharedCounts:
    """The counts of several queues from one read; each is taken once."""

    def __init__(self, names: Sequence[str], backend: str | None) -> None:
        self._names, self._backend = names, backend
        self._counts: dict[str, Counts] = {}
        self._read_at = 0.0

    def take(self, name: str) -> Counts:
        """Return the counts of a queue; read those of all if these were taken before or are too old."""
        if name not in self._counts or monotonic() - self._read_at > _MAX_AGE:
            self._counts = counts(self._names, backend=self._backend)
            self._read_at = monotonic()
        return self._counts.pop(name)

    def forget(self) -> None:
        """Read again for the next queue."""
        self._counts = {}


def pause_end_us(until: datetime | timedelta | float, store: Store) -> int:
    """Return the end of a pause in µs since the epoch. Raises `InvalidMoment` unless it is later than now."""
    end_us = until_us(until, store, name="until")
    if end_us <= store.now_us():
        raise InvalidMoment("until must be later than now; to end a pause use resume()")
    return end_us


def queue(name: str, *, backend: str | None = None) -> Queue:
    """Return a queue by its name. Raises `UnknownQueue` if it is neither declared in QUEUES nor known to Redis."""
    store = get_store(backend)
    try:
        return Queue(store.config.tasks.check_queue(name), backend)
    except UnknownQueue:
        # Jobs of a queue that is no longer declared may be left.
        if name not in store.snapshot().queues:
            raise
        return Queue(name, backend)


def queues(*, backend: str | None = None) -> Iterator[Queue]:
    """Iterate over the queues: those that are declared, paused, or have or recently had jobs; sorted by name."""
    store = get_store(backend)
    names = sorted({*store.snapshot().queues, *(store.config.tasks.queues or ())})
    shared = _SharedCounts(names, backend)
    for name in names:
        yield Queue(name, backend, shared)


def counts(names: Sequence[str], *, backend: str | None = None) -> dict[str, Counts]:
    """Return the jobs of several queues by state; running and failed jobs are read once for all of them."""
    store, found = get_store(backend), dict[str, Counts]()
    snapshot = store.snapshot()
    for name in names:
        state = snapshot.queues.get(name, QueueState())
        oldest = state.oldest_ready_us
        found[name] = Counts(
            scheduled=state.scheduled,
            ready=state.ready,
            running=0,
            failed=0,
            parked=state.parked,
            oldest=None if oldest is None else moment(oldest),
        )

    def take(page: JobPage) -> None:
        for row in page.rows:
            if row.queue in found:
                found[row.queue]["running" if row.state is State.CLAIMED else "failed"] += 1

    for kept in (State.CLAIMED, State.DEAD):
        store.reads().read(partial(_read_all, store, kept, take))
    return found


def _read_all(store: Store, state: State, take: Callable[[JobPage], None], shard: int) -> Reading[None]:
    return store.lookup(shard).read_pages(state, take)


def _workers(store: Store) -> Iterator[WorkerControl]:
    return (store.operations(shard).workers for shard in store.shard_numbers())
