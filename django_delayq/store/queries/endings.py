"""Endings: the last jobs that ended, as their workers reported them. Reads only."""

from collections.abc import Iterable
from operator import attrgetter

from django_delayq.job.ending import Ending
from django_delayq.job.security.endings_record import read_endings
from django_delayq.store.client.reading import Reading
from django_delayq.store.nodes.resp import encode
from django_delayq.store.shard import Shard

_MOMENT_AND_ID = attrgetter("ended_us", "raw_id")


class EndingQueries:
    """API of one shard that reads endings."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    def read_endings(self) -> Reading[list[Ending]]:
        """Return the reading of all endings that a shard has, in no order; damaged ones are left out.

        One round trip of at most 200 bytes for each ending of FINISHED_KEPT, beside one chunk.
        """
        [stored] = yield [encode("LRANGE", self._shard.keys("finished"), 0, -1)]
        cipher, index = self._shard.cipher, self._shard.index
        # The chunk follows two numbers, which only scripts need.
        chunks = (each.partition(b" ")[2].partition(b" ")[2] for each in stored)
        return [ending for chunk in chunks for ending in read_endings(chunk, shard=index, cipher=cipher)]


def newest_endings(parts: Iterable[Iterable[Ending]], most: int) -> list[Ending]:
    """Return the newest endings of several shards, newest first; once each, although a report may be repeated."""
    found = {_MOMENT_AND_ID(each): each for part in parts for each in part}
    # Keys are unique, so that no endings are compared.
    return [ending for _, ending in sorted(found.items(), reverse=True)[:most]]
