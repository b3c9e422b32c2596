"""View: what waits, and what is dead, in all stores of this process."""

from collections.abc import Iterator, Sequence

from django_delayq.job.job import Job, State
from django_delayq.store.queries.job_pages import JobRow
from django_delayq.store.store import Store
from django_delayq.testing.job_views import EnqueuedJob

_PAGE = 250


def waiting(stores: Sequence[Store], *, now_us: int) -> list[EnqueuedJob]:
    """Return all jobs that wait, in the order in which they are to run."""
    return [*_seen(stores, State.READY, now_us), *_seen(stores, State.SCHEDULED, now_us)]


def dead(stores: Sequence[Store], *, now_us: int) -> list[EnqueuedJob]:
    """Return all dead letters, oldest first."""
    return _seen(stores, State.DEAD, now_us)


def next_due_us(stores: Sequence[Store]) -> int | None:
    """Return the moment (µs since the epoch) of the next job to become due, or None."""
    due = [
        row.moment_us
        for store in stores
        for shard in store.shards
        for row in store.lookup(shard.index).page(State.SCHEDULED, queues=shard.read_queues(), count=1).rows
    ]
    return min(due, default=None)


def _seen(stores: Sequence[Store], state: State, now_us: int) -> list[EnqueuedJob]:
    found = [(row, store) for store in stores for row in _rows(store, state)]
    found.sort(key=lambda pair: pair[0].cursor)
    return [EnqueuedJob.of(row, _job(store, row), now_us=now_us) for row, store in found]


def _job(store: Store, row: JobRow) -> Job | None:
    """Return the job of a row; of a long body pages show the beginning only."""
    if not row.is_cut:
        return row.job
    return store.lookup(row.shard).find(row.raw_id, queue=row.queue, member=row.member).job


def _rows(store: Store, state: State) -> Iterator[JobRow]:
    for shard in store.shards:
        queues, cursor = shard.read_queues(), None
        while True:
            page = store.lookup(shard.index).page(state, queues=queues, cursor=cursor, count=_PAGE)
            yield from page.rows
            cursor = page.end
            if cursor is None:
                break
