"""Totals: what was counted since a shard began, and how many jobs were enqueued. They only grow. Reads only."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from django_delayq.job.job import DEFAULT_QUEUE
from django_delayq.metrics import Stats, queue_dimension, task_dimension
from django_delayq.store.client.reading import Reading
from django_delayq.store.client.script import Script
from django_delayq.store.shard import Shard

_READ_TOTALS = Script("read_totals")
#: How many series a call reads: each has up to 60 minutes.
_BATCH = 500
_DEFAULT = DEFAULT_QUEUE.encode()


class ShardTotals(NamedTuple):
    """The totals of one shard, as they are stored."""

    #: Dimension (see `metrics`) -> its row, without that of its newest minute.
    ended: dict[bytes, bytes]
    #: Queue and task -> jobs that were stored.
    enqueued: dict[bytes, bytes]
    #: Dimension -> the row of its newest minute.
    newest: dict[bytes, bytes]


class Totals(NamedTuple):
    """The totals of all shards."""

    #: Dimension (see `metrics`) -> what was counted.
    stats: Mapping[bytes, Stats]
    #: Dimension of a queue or task -> jobs that were stored. Those without a name are of further pairs than are told
    #: apart.
    enqueued: Mapping[bytes, int]


class TotalsQueries:
    """Totals, one shard."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    def read_totals(self) -> Reading[ShardTotals]:
        """Return the reading of the totals: one round trip for 500 queues and tasks."""
        found = ShardTotals({}, {}, {})
        after = b""
        while True:
            [[_now_us, after, *parts]] = yield [self._shard.call(_READ_TOTALS, [after, _BATCH])]
            for each, fields in zip(found, parts, strict=True):
                each.update(zip(fields[::2], fields[1::2], strict=True))
            if not after:
                return found


def combined_totals(of_shards: Iterable[ShardTotals]) -> Totals:
    """Return the totals of several shards together."""
    rows: dict[bytes, list[bytes]] = defaultdict(list)
    enqueued: dict[bytes, int] = defaultdict(int)
    for shard in of_shards:
        for of_dimension in (shard.ended, shard.newest):
            for dimension, row in of_dimension.items():
                rows[dimension].append(row)
        for names, count in shard.enqueued.items():
            # Anything else was edited manually.
            if count.isdigit():
                for dimension in _dimensions(names):
                    enqueued[dimension] += int(count)
    return Totals({dimension: Stats.of_texts(*texts) for dimension, texts in rows.items()}, dict(enqueued))


def _dimensions(names: bytes) -> tuple[bytes, bytes]:
    """Return the queue and the task of the part of a body that names both; further pairs count without names."""
    if not names:
        return queue_dimension(""), task_dimension("")
    end = 1 + names[0]
    # A body has no name of the default queue.
    return b"queue:" + (names[1:end] or _DEFAULT), b"task:" + names[end + 2 :]
