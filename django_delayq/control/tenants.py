"""Tenants: count, pause, resume and cancel the jobs of one tenant in one queue."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TypedDict

from django_delayq.clock import moment
from django_delayq.control.jobs import OnProgress
from django_delayq.store.client.reading import Reading
from django_delayq.store.digests import tenant_digest
from django_delayq.store.operations.batch import BatchJob
from django_delayq.store.queries.shard_reads import ShardReads
from django_delayq.store.queries.snapshot import Pause
from django_delayq.store.queries.tenants import TenantState
from django_delayq.store.store import Store, get_store


class TenantCounts(TypedDict):
    """The waiting jobs of one tenant in one queue."""

    #: Scheduled and ready jobs.
    waiting: int
    #: Since when the job that is claimed next has been due; None if none is ready.
    oldest: datetime | None
    #: Whether somebody paused it.
    paused: bool


@dataclass(frozen=True, slots=True)
class Tenant:
    """One tenant of one queue, by its name. It reads nothing until a method is called."""

    #: Name of the tenant.
    name: str
    #: Name of the queue.
    queue: str
    #: Alias in TASKS whose store has it; None for that of DELAYQ.
    backend: str | None = None

    def counts(self) -> TenantCounts:
        """Return how many of its jobs wait, and since when the next one has been due. One round trip."""
        return counts(self._states())

    @property
    def paused(self) -> Pause | None:
        """Who paused it, and when; None if it is not paused. One round trip."""
        return next((state.paused for state in self._states() if state.paused), None)

    def pause(self, *, by: str = "code") -> bool:
        """Stop claims of its jobs from this queue until `resume()`; running ones continue.

        Returns False if it was paused already. `by` is the name that the admin shows. Raises ValueError if the queue is
        not fair: then workers claim its jobs by their ranks, whoever they are of.
        """
        if not isinstance(by, str) or not by:
            raise TypeError(f"by must be a text that names who pauses the tenant, got {by!r:.80}")
        store = self._store
        if not store.config.tasks.options_of(self.queue).fair:
            raise ValueError(
                f"queue {self.queue!r} is not fair, so a tenant of it cannot be paused; "
                f"set DELAYQ['QUEUES'][{self.queue!r}]['fair'] to True, or pause the queue"
            )
        workers = [store.operations(shard).workers for shard in self._shards()]
        return sum(each.pause_tenant(self.queue, self.name, by=by) for each in workers) > 0

    def resume(self) -> bool:
        """Allow claims of its jobs again. Returns False if it was not paused."""
        workers = [self._store.operations(shard).workers for shard in self._shards()]
        return sum(each.resume_tenant(self.queue, self.name) for each in workers) > 0

    def cancel(self, *, on_progress: OnProgress | None = None) -> int:
        """Cancel its waiting jobs, in batches of 250, and return how many. Those that begin meanwhile run."""
        cancelled, seen = 0, 0
        for shard in self._shards():
            operations = self._store.operations(shard)
            for ids, _ in self._store.tenants(shard).ids(self.queue, self.name):
                effects = operations.waiting_jobs.cancel([BatchJob(raw_id=raw_id) for raw_id in ids])
                cancelled += sum(effect.done for effect in effects)
                seen += len(ids)
                if on_progress is not None:
                    on_progress(cancelled, seen)
        return cancelled

    @property
    def _store(self) -> Store:
        return get_store(self.backend)

    def _states(self) -> list[TenantState]:
        """Return what each shard has of it."""
        store, digest = self._store, tenant_digest(self.name)
        return [*store.reads().read(lambda shard: store.tenants(shard).read_tenant(self.queue, digest)).values()]

    def _shards(self) -> range:
        return self._store.shard_numbers()


def counts(states: list[TenantState]) -> TenantCounts:
    """Return the sum of what the shards have of one tenant."""
    oldest = min((state.oldest_us for state in states if state.oldest_us is not None), default=None)
    return TenantCounts(
        waiting=sum(state.waiting for state in states),
        oldest=None if oldest is None else moment(oldest),
        paused=any(state.paused for state in states),
    )


def iter_tenants(
    queue: str, backend: str | None, *, reads: ShardReads | None = None
) -> Iterator[tuple[Tenant, TenantCounts]]:
    """Yield the tenants of a queue that have waiting jobs or are paused, with their counts, in no useful order."""
    store = get_store(backend)
    reads = reads or store.reads()
    # A pause is in every shard, and the jobs of a tenant in one; after a change of SHARDS in several.
    paused: dict[str, TenantState] = {}
    for states in reads.read(lambda shard: store.tenants(shard).read_paused(queue)).values():
        paused |= {state.name: state for state in states if state.name is not None}
    # A step of all shards at a time: there may be very many tenants.
    after = dict.fromkeys(reads.answering, b"")
    while after:
        batches = reads.read(partial(_read_batch, store, queue, after), after)
        for batch, _ in batches.values():
            for state in batch:
                if state.name is not None:
                    paused.pop(state.name, None)
                    yield Tenant(state.name, queue, backend), counts([state])
        after = {shard: following for shard, (_, following) in batches.items() if following is not None}
    for name, state in paused.items():
        yield Tenant(name, queue, backend), counts([state])


def _read_batch(
    store: Store, queue: str, after: Mapping[int, bytes], shard: int
) -> Reading[tuple[list[TenantState], bytes | None]]:
    return store.tenants(shard).read_batch(queue, after[shard])
