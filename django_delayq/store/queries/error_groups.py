"""Error groups: how many dead letters have failed for one reason, and when. Reads only."""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct

from django_delayq.job.errors.error_group import ErrorGroup
from django_delayq.job.security.error_group_record import read_label
from django_delayq.store.client.reading import Reading
from django_delayq.store.client.script import Script
from django_delayq.store.nodes.resp import Part
from django_delayq.store.shard import Shard

_FIND_ERROR_GROUPS = Script("find_error_groups")
#: The record of a group: when a dead letter of it came first and last, also of those that are gone; its label follows.
_TIMES = Struct(">QQ")
#: Parts of the reply for each group, and for each named one.
_COUNT_PARTS, _PARTS = 3, 6
#: Most groups that one call names: with 24 bars it holds Redis for less than 10 ms.
_MOST_NAMED = 250


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorGroupCount:
    """One group that has dead letters, in one shard."""

    digest: bytes
    #: What they have in common; None if that is nothing, or if this process cannot read it.
    group: ErrorGroup | None
    count: int
    #: When a dead letter of it came first, and last, of all that ever came, µs since the epoch; 0 if that is lost.
    first_us: int
    last_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorGroupTimes:
    """When the dead letters of a group died that are there now, in one shard."""

    count: int
    #: None: there is none any more.
    oldest_us: int | None
    newest_us: int | None
    #: How many died within each bar.
    bars: Sequence[int]


class ErrorGroupQueries:
    """API of one shard that reads error groups. Each method is one round trip."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    def find_error_groups(self) -> list[ErrorGroupCount]:
        """Return all groups that have dead letters, at most 1,251. O(log n) a group."""
        return self._shard.read(self.read_counts())

    def read_counts(self) -> Reading[list[ErrorGroupCount]]:
        """Return the reading of `find_error_groups()`."""
        [reply] = yield [self._shard.call(_FIND_ERROR_GROUPS, [0, 0, 0])]
        return [
            self._count(*reply[at : at + _COUNT_PARTS]) for at in range(1, len(reply) - _COUNT_PARTS + 1, _COUNT_PARTS)
        ]

    def times(
        self, digests: Sequence[bytes], *, start_us: int = 0, width_us: int = 0, bars: int = 0
    ) -> list[ErrorGroupTimes]:
        """Return when the dead letters of these groups died, with the numbers within bars from `start_us` on.

        One round trip, O(log n) a group and bar.
        """
        return self._shard.read(self.read_times(digests, start_us=start_us, width_us=width_us, bars=bars))

    def read_times(
        self, digests: Sequence[bytes], *, start_us: int = 0, width_us: int = 0, bars: int = 0
    ) -> Reading[list[ErrorGroupTimes]]:
        """Return the reading of `times()`."""
        calls = []
        for at in range(0, len(digests), _MOST_NAMED):
            args: list[Part] = [start_us, width_us, bars, *digests[at : at + _MOST_NAMED]]
            calls.append(self._shard.call(_FIND_ERROR_GROUPS, args))
        replies = (yield calls) if calls else []
        return [
            ErrorGroupTimes(
                count=count,
                oldest_us=int(oldest) if oldest != b"" else None,
                newest_us=int(newest) if newest != b"" else None,
                bars=[int(each) for each in counts.split()],
            )
            for reply in replies
            for count, oldest, newest, counts in (reply[at + 2 : at + _PARTS] for at in range(1, len(reply), _PARTS))
        ]

    def _count(self, digest: bytes, record: bytes, count: int) -> ErrorGroupCount:
        first_us, last_us = _TIMES.unpack_from(record) if len(record) >= _TIMES.size else (0, 0)
        return ErrorGroupCount(
            digest=digest,
            group=read_label(digest, record[_TIMES.size :], self._shard.cipher),
            count=count,
            first_us=first_us,
            last_us=last_us,
        )
