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
#: How many dimensions a call reads, about 15 µs each: other commands wait meanwhile.
_BATCH = 300
_DEFAULT = DEFAULT_QUEUE.encode()


class ShardTotals(NamedTuple):
    """The totals of one shard, as they are stored."""

    #: Queue and task -> jobs that were stored.
    enqueued: dict[bytes, bytes]
    #: Dimension (see `metrics`) -> its lines, each a minute and a row: its total, and what that lacks.
    lines: dict[bytes, bytes]


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
        """Return the reading of the totals: one round trip for 300 queues and tasks."""
        found = ShardTotals({}, {})
        after = b""
        while True:
            [[_now_us, after, *parts]] = yield [self._shard.call(_READ_TOTALS, [after, _BATCH])]
            for each, fields in zip(found, parts, strict=True):
                each.update(zip(fields[::2], fields[1::2], strict=True))
            if not after:
                return found


def combined_totals(of_shards: Iterable[ShardTotals]) -> Totals:
    """Return the totals of several shards together."""
    lines: dict[bytes, list[bytes]] = defaultdict(list)
    enqueued: dict[bytes, int] = defaultdict(int)
    for shard in of_shards:
        for dimension, text in shard.lines.items():
            lines[dimension].append(text)
        for names, count in shard.enqueued.items():
            # Anything else was edited manually.
            if count.isdigit() and len(count) < 20:
                for dimension in _dimensions(names):
                    enqueued[dimension] += int(count)
    return Totals({dimension: Stats.of_lines(b"\n".join(texts)) for dimension, texts in lines.items()}, dict(enqueued))


def _dimensions(names: bytes) -> tuple[bytes, bytes]:
    """Return the queue and the task of the part of a body that names both; further pairs count without names."""
    if not names:
        return queue_dimension(""), task_dimension("")
    end = 1 + names[0]
    # A body has no name of the default queue.
    return b"queue:" + (names[1:end] or _DEFAULT), b"task:" + names[end + 2 :]
