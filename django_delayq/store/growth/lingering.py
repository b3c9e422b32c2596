"""Lingering: which routing values have something in a shard although they belong to another one by now."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from django_delayq.job.layout import Layout
from django_delayq.store.client.reading import Reading
from django_delayq.store.client.script import Script
from django_delayq.store.digests import routing_of_limit, routings_of
from django_delayq.store.nodes.resp import Part, encode
from django_delayq.store.records import ExtrasRecord
from django_delayq.store.shard import Shard

_COUNT_LINGERING = Script("count_lingering")
#: Entries in one round trip.
_BATCH = 500
#: What stands before a slot in `limit_jobs`.
_SLOT = b"\2"
#: What stands before the digest of a throttled key in `lingering`, and the bytes of both.
_BEFORE_WINDOW, _WINDOW_SIZE = b"\0", 17


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownLeft:
    """What a shard knows of the layout, and of what is left there, without a count."""

    #: None: it knows no layout yet.
    layout: Layout | None
    #: The routing values of which the last count found something, and those that were used since; some are free by now.
    values: int
    #: The number of the layout with which that count began. Before a later layout is counted, all values count as left.
    counted_for: int
    #: Recurring schedules that are on their way to another shard.
    leaving_schedules: int


class Lingering:
    """API of one shard for those who count what is left there."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    def count_lingering(self, step: str, number: int, *more: Part) -> int:
        """Make one step of a count. See `count_lingering.lua`; `count()` makes all of them."""
        return int(self._shard.run(_COUNT_LINGERING, [step, number, *more]))

    def count(self) -> Counter[str] | None:
        """Count what is left here: kind of thing -> how many; None if somebody else counts. O(n), in batches of 500.

        Values of which nothing is left are free from then on. Raises `OtherLayout`.
        """
        layout, left = self._shard.layout, Counter[str]()
        number = self.count_lingering("begin", layout.number)
        is_first = _counted_for(self._shard.execute("HGET", self._shard.keys("lingering"), b"")) < max(
            each.since for each in layout.chain
        )
        # The slots come after the jobs: a job that ends meanwhile has left its slot and its time before.
        for kind, number_left, values in self._found(layout, is_first):
            if kind:
                left[kind] += number_left
            if not self.count_lingering("add", number, *(part for pair in values for part in pair)):
                return None
        if not self.count_lingering("end", number, layout.number):
            return None
        left["throttled key"] = self._forget(number)
        return left

    def read_known(self) -> Reading[KnownLeft]:
        """Return the reading of what is known without a count. One step, O(1)."""
        keys = self._shard.keys
        layout, count, size, leaving = yield [
            encode("GET", keys("shards")),
            encode("HGET", keys("lingering"), b""),
            encode("HLEN", keys("lingering")),
            encode("HLEN", keys("leaving_schedules")),
        ]
        return KnownLeft(
            layout=Layout.read(layout),
            values=size - (count is not None),
            counted_for=_counted_for(count),
            leaving_schedules=leaving,
        )

    def _found(self, layout: Layout, is_first: bool) -> Iterator[tuple[str, int, list[tuple[bytes, Part]]]]:
        """Yield what is left, in batches: its kind, how many there are, and the fields and values to add.

        "" is what belongs here again: it is not left, but may have been here before it belonged to another shard.
        """
        keys = self._shard.keys
        for jobs in self._shard.scan(keys("job_extras"), batch=_BATCH):
            by_kind = dict[str, list[bytes]]()
            for _, record in jobs:
                kind, values = routings_of(ExtrasRecord.unpack(record))
                by_kind.setdefault(f"job with a {kind}", []).extend(values)
            for kind, found in by_kind.items():
                yield from self._to_add(kind, found, layout)
        for entries in self._slots():
            yield from self._to_add("slot", _limits(entry[1:13] for entry in entries), layout)
        for entries in self._times():
            yield from self._to_add("rate of a limit", _limits(entry[-12:] for entry in entries), layout)
        ends = self._shard.scan(keys("throttle_ends"), command="ZSCAN", batch=_BATCH)
        for windows in ends if is_first else ():
            # Counted when it is forgotten.
            yield "throttled key", 0, [(_BEFORE_WINDOW + digest, int(float(end))) for digest, end in windows]

    def _to_add(
        self, kind: str, values: Iterable[bytes], layout: Layout
    ) -> Iterator[tuple[str, int, list[tuple[bytes, Part]]]]:
        """Yield those of these values that a count adds, as `_found()` does: not those that always belonged here."""
        by_kind = dict[str, Counter[bytes]]()
        for value, number in Counter(values).items():
            if layout.home(value) != self._shard.index:
                by_kind.setdefault(kind, Counter())[value] = number
            elif len(layout.places(value)) > 1:
                by_kind.setdefault("", Counter())[value] = number
        for each, found in by_kind.items():
            yield each, found.total(), [(value, b"") for value in found]

    def _slots(self) -> Iterator[list[bytes]]:
        key, first = self._shard.keys("limit_jobs"), b"[" + _SLOT
        while entries := self._shard.execute("ZRANGE", key, first, b"+", "BYLEX", "LIMIT", 0, _BATCH):
            yield entries
            first = b"(" + entries[-1]

    def _times(self) -> Iterator[list[bytes]]:
        """Yield the limits whose time is ahead, so that the next job waits, or their burst is not whole."""
        key, start = self._shard.keys("limit_times"), 0
        now_us = self._now_us()
        # From the latest on: those that pass meanwhile do not shift the others.
        while entries := self._shard.execute(
            "ZRANGE", key, "+inf", f"({now_us}", "BYSCORE", "REV", "LIMIT", start, _BATCH
        ):
            yield entries
            start += len(entries)

    def _forget(self, number: int) -> int:
        """Give the memory of free values back; return how many windows of throttled keys are still open."""
        now_us, open_windows = self._now_us(), 0
        for found in self._shard.scan(self._shard.keys("lingering"), batch=_BATCH):
            ends = [end for name, end in found if len(name) == _WINDOW_SIZE and name[:1] == _BEFORE_WINDOW]
            open_windows += sum(int(end) > now_us for end in ends)
            self.count_lingering("forget", number, *(name for name, _ in found if name))
        return open_windows

    def _now_us(self) -> int:
        return self._shard.now_us(self._shard.execute("TIME"))


def _limits(digests: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the routing values of limits; entries that were edited manually are left out."""
    return (routing_of_limit(digest) for digest in digests if len(digest) == 12)


def _counted_for(stored: bytes | None) -> int:
    """Return the number of the layout with which the last count that has ended began; 0: none has."""
    return int.from_bytes((stored or b"")[16:24])
