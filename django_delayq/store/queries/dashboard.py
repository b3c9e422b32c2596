"""Dashboard queries: jobs by state, processes and metrics of one shard at one moment. Reads only."""

from collections.abc import Iterable, Sequence
from typing import Any

from django_delayq.exceptions import BadBody
from django_delayq.job.body.codec import decode_head
from django_delayq.job.job import due_of_rank
from django_delayq.metrics import ALL_JOBS, hours_text, queue_dimension, task_dimension
from django_delayq.store.client.reading import Reading
from django_delayq.store.client.script import Script
from django_delayq.store.keys import decode_queue
from django_delayq.store.nodes.resp import encode
from django_delayq.store.queries.job_pages import whole
from django_delayq.store.queries.snapshot import Pause, Process, QueueState, Snapshot, read_paused_tasks, read_releases
from django_delayq.store.servers.server_info import ServerInfo
from django_delayq.store.shard import Shard

_SNAPSHOT, _DUE_HISTOGRAM = Script("snapshot"), Script("due_histogram")
#: The keys of a shard that grow with its jobs, beside those of each queue; and how many of their entries are measured.
_LARGE = ("jobs", "attempts", "job_extras", "unique_keys", "claim_records", "leases", "dead_letters", "dead_bodies")
_SAMPLES = 50
#: The spans that one call of `due_histogram` counts, about 2 µs each: other commands wait meanwhile.
_COUNTS = 2_000


class DashboardQueries:
    """Dashboard queries, one shard."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._due_first_us = shard.config.dispatcher.due_first_us
        # Names of queues seldom change. With those of the last snapshot, one round trip is enough.
        self._queues: list[str] = []

    def snapshot(
        self, *, tasks: Sequence[str] = (), facts: bool = False, dimension: bytes = b"", week: bool = False
    ) -> Snapshot:
        """Return a snapshot with the metrics of all jobs, each queue, the named tasks and one more dimension.

        With `facts`, it includes the server's INFO, if this user may read it, and counts the schedules with a fault.
        With `week`, it includes the last week of that dimension. One round trip, two if a queue is new. O(log n) a
        queue, O(1) a process and task.
        """
        return self._shard.read(self.read_snapshot(tasks=tasks, facts=facts, dimension=dimension, week=week))

    def read_snapshot(
        self, *, tasks: Sequence[str] = (), facts: bool = False, dimension: bytes = b"", week: bool = False
    ) -> Reading[Snapshot]:
        """Return the reading of `snapshot()`."""
        snapshot, queues = yield from self._read_snapshot(self._queues, tasks, facts, dimension, week)
        if queues != self._queues:
            self._queues = queues
            snapshot, _ = yield from self._read_snapshot(queues, tasks, facts, dimension, week)
        return snapshot

    def due_histogram(self, edges_us: Sequence[int], *, queues: Sequence[str]) -> dict[str, list[int]]:
        """Return how many scheduled jobs of each queue become due from each edge to before the next.

        Queues without such jobs are left out. One round trip, O(log n) a queue and span.
        """
        return self._shard.read(self.read_due_histogram(edges_us, queues=queues))

    def read_due_histogram(self, edges_us: Sequence[int], *, queues: Sequence[str]) -> Reading[dict[str, list[int]]]:
        """Return the reading of `due_histogram()`."""
        size = max(1, _COUNTS // len(edges_us))
        batches = [queues[first : first + size] for first in range(0, len(queues), size)]
        replies = yield [
            self._shard.call(_DUE_HISTOGRAM, edges_us, more_keys=[self._shard.keys.scheduled(each) for each in batch])
            for batch in batches
        ]
        return {
            batch[number - 1]: [int(each) for each in counts.split()]
            for batch, found in zip(batches, replies, strict=True)
            for number, counts in zip(found[::2], found[1::2], strict=True)
        }

    def read_memory(self, queues: Iterable[str]) -> Reading[int]:
        """Return the reading of the bytes that the jobs of a shard take, estimated from samples. O(1) a queue.

        Results that are kept and the tenants of fair queues are left out.
        """
        keys = self._shard.keys
        names = [*map(keys, _LARGE), *(key for queue in queues for key in (keys.scheduled(queue), keys.ready(queue)))]
        sizes = yield [encode("MEMORY", "USAGE", name, "SAMPLES", _SAMPLES) for name in names]
        return sum(size or 0 for size in sizes)

    def _read_snapshot(
        self, queues: Sequence[str], tasks: Sequence[str], facts: bool, dimension: bytes, week: bool
    ) -> Reading[tuple[Snapshot, list[str]]]:
        """Return the reading of the snapshot with these queues, and of the names that it should have."""
        keys = self._shard.keys
        named = [ALL_JOBS, *map(queue_dimension, queues), *map(task_dimension, tasks)]
        # A queue may be forgotten because it has had no job for a while.
        dimensions = [*named, dimension] if dimension and dimension not in named else named
        places = [key for each in queues for key in keys.places(each)]
        [reply] = yield [
            self._shard.call(_SNAPSHOT, [int(facts), dimension if week else "", *dimensions], more_keys=places)
        ]
        now_us, claimed, dead, died_last_hour, newest, names, *more = reply
        pauses, workers, dispatchers, reports, quiet, series, info, states, paused_tasks, schedules, releases, hours = (
            more
        )
        paused, statuses = dict(_pairs(pauses)), dict(_pairs(reports))
        series_of = {each: text for each, text in zip(dimensions, series, strict=True) if text}
        snapshot = Snapshot(
            now_us=now_us,
            queues={
                queue: self._queue_state(cells, Pause.read(paused.get(keys.ready(queue).encode())))
                for queue, cells in zip(queues, states, strict=True)
            },
            claimed=claimed,
            dead=dead,
            died_last_hour=died_last_hour,
            newest_death_us=_moment(newest),
            processes=[
                Process.read(
                    statuses.get(code),
                    kind=kind,
                    code=code,
                    shard=self._shard.index,
                    seen_us=whole(seen),
                    asked_quiet=code in quiet,
                )
                for kind, found in (("dispatcher", dispatchers), ("worker", workers))
                for code, seen in _pairs(found)
                # A worker's fallback dispatcher promotes under a code of its own and sends no report.
                if kind == "worker" or code in statuses
            ],
            servers={self._shard.route.server_label: ServerInfo.of(info)} if info else {},
            metrics=series_of,
            week=hours_text(hours, series_of.get(dimension, b""), now_us=now_us) if week else b"",
            releases=read_releases(_pairs(releases)),
            paused_tasks=read_paused_tasks(paused_tasks[1::2]),
            schedules=schedules[0],
            failing_schedules=schedules[1],
            unreadable_schedules=schedules[2],
        )
        # A paused queue is listed even without jobs. The key of its ready set ends with its name.
        return snapshot, sorted({decode_queue(key.rpartition(b":")[2]) for key in (*names, *paused)})

    def _queue_state(self, cells: Sequence[Any], pause: Pause | None) -> QueueState:
        scheduled, ready, overdue, oldest, following, head, member, rank, parked = cells
        oldest_ready_us = None
        if member:
            flags = member[13] if len(member) > 13 else 0
            oldest_ready_us = due_of_rank(whole(rank), flags, due_first_us=self._due_first_us)
        return QueueState(
            scheduled=scheduled,
            ready=ready,
            parked=parked,
            overdue=overdue,
            oldest_overdue_us=_moment(oldest),
            next_due_us=_moment(following),
            next_task=_task(head),
            oldest_ready_us=oldest_ready_us,
            paused=pause,
        )


def _pairs(flat: Sequence[Any]) -> Iterable[tuple[Any, Any]]:
    return zip(flat[::2], flat[1::2], strict=True)


def _task(head: bytes | None) -> str:
    try:
        return decode_head(head or b"").task
    except BadBody:
        return ""


def _moment(score: bytes) -> int | None:
    return whole(score) if score else None
