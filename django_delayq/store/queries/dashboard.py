"""Survey: what a dashboard's head shows of a shard: counts, processes, figures, all of one moment. Reads only."""

from collections.abc import Iterable, Sequence
from typing import Any

from django_delayq.exceptions import BadBody
from django_delayq.job.codec import decode_head
from django_delayq.job.job import due_of_rank
from django_delayq.metrics import ALL_JOBS, MinuteSeries, queue_dimension, task_dimension
from django_delayq.store.client.script import Script
from django_delayq.store.client.server_info import ServerInfo
from django_delayq.store.keys import decode_queue
from django_delayq.store.queries.job_pages import whole
from django_delayq.store.queries.snapshot import Pause, Process, QueueState, Snapshot
from django_delayq.store.shard import Shard

_SNAPSHOT, _DUE_HISTOGRAM = Script("snapshot"), Script("due_histogram")
#: What `snapshot.lua` returns before its queues, and of each of them.
_FIXED, _CELLS = 13, 8


class DashboardQueries:
    """The watcher's door of one shard."""

    def __init__(self, shard: Shard, *, due_first_us: int) -> None:
        self._shard = shard
        self._due_first_us = due_first_us
        # Names of queues seldom change: knowing them from the last time saves a round trip.
        self._queues: list[str] = []

    def snapshot(self, *, tasks: Sequence[str] = (), facts: bool = False) -> Snapshot:
        """Return one moment's picture, with the last hour of all jobs, each queue and the named tasks.

        With `facts`, also with what the server says of itself, where this user may ask. One round trip, two where a
        queue is new. O(log n) a queue, O(1) a process and task.
        """
        queues = self._queues
        reply, scopes = self._ask(queues, tasks, facts)
        # A paused one matters as long as it is paused, and the key of its ready set ends with its name.
        paused = (key.rpartition(b":")[2] for key, _ in _pairs(reply[6]))
        named = sorted({decode_queue(name) for name in (*reply[5], *paused)})
        if named != queues:
            self._queues = queues = named
            reply, scopes = self._ask(queues, tasks, facts)
        return self._made(reply, queues, scopes)

    def due_histogram(self, edges_us: Sequence[int], *, queues: Sequence[str]) -> list[int]:
        """Return how many scheduled jobs of the named queues become due from each edge to before the next.

        One round trip, O(log n) a queue and span.
        """
        places = [self._shard.keys.scheduled(queue) for queue in queues]
        return [int(count) for count in self._shard.run(_DUE_HISTOGRAM, list(edges_us), more_keys=places)]

    def _ask(self, queues: Sequence[str], tasks: Sequence[str], facts: bool) -> tuple[list[Any], list[bytes]]:
        keys = self._shard.keys
        scopes = [ALL_JOBS, *map(queue_dimension, queues), *map(task_dimension, tasks)]
        places = [key for queue in queues for key in keys.waiting_places(queue).values()]
        return self._shard.run(_SNAPSHOT, [int(facts), *scopes], more_keys=places), scopes

    def _made(self, reply: list[Any], queues: Sequence[str], scopes: Sequence[bytes]) -> Snapshot:
        now_us, claimed, dead, died_last_hour, newest, _, paused, *others = reply[:_FIXED]
        workers, dispatchers, reports, quieted, rings, info = others
        said, pauses = dict(_pairs(reports)), dict(_pairs(paused))
        seen = [("dispatcher", dispatchers), ("worker", workers)]
        processes = [
            Process.read(said.get(code), kind=kind, code=code, shard=self._shard.index, seen_us=whole(at))
            for kind, found in seen
            for code, at in _pairs(found)
            # A stand-in promotes under a code of its own, and says nothing of itself: its worker does.
            if kind == "worker" or code in said
        ]
        states = {
            queue: self._queue(reply[at : at + _CELLS], Pause.read(pauses.get(self._shard.keys.ready(queue).encode())))
            for queue, at in zip(queues, range(_FIXED, len(reply), _CELLS), strict=True)
        }
        return Snapshot(
            now_us=now_us,
            queues=states,
            claimed=claimed,
            dead=dead,
            died_last_hour=died_last_hour,
            newest_death_us=_moment(newest),
            processes=[process.asked(process.code in quieted) for process in processes],
            server=ServerInfo.of(_told(info)) if info else None,
            history={scope: MinuteSeries.unpack(ring) for scope, ring in zip(scopes, rings, strict=True)},
        )

    def _queue(self, cells: Sequence[Any], pause: Pause | None) -> QueueState:
        scheduled, ready, overdue, oldest, following, front, member, rank = cells
        oldest_ready_us = None
        if member:
            oldest_ready_us = due_of_rank(
                whole(rank), member[13] if len(member) > 13 else 0, due_first_us=self._due_first_us
            )
        return QueueState(
            scheduled=scheduled,
            ready=ready,
            overdue=overdue,
            oldest_overdue_us=_moment(oldest),
            next_due_us=_moment(following),
            next_task=_task(front),
            oldest_ready_us=oldest_ready_us,
            paused=pause,
        )


def _pairs(flat: Sequence[Any]) -> Iterable[tuple[Any, Any]]:
    return zip(flat[::2], flat[1::2], strict=True)


def _task(front: bytes | None) -> str:
    try:
        return decode_head(front or b"").task
    except BadBody:
        return ""


def _told(info: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in info.decode(errors="replace").splitlines())
    return {name: value for name, colon, value in lines if colon}


def _moment(score: bytes) -> int | None:
    return whole(score) if score else None
