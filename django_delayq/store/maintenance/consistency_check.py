"""Audit: hold every key of a shard against every other, in slices; repair what no step could have left behind.

Safe while the system works: what a slice shows is judged, and repaired, by one script in Redis. It finds what hands,
lost writes and broken disks do; a shard that only our scripts wrote to has nothing to find.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from django_delayq.exceptions import BadBody
from django_delayq.job.attempts import NO_ATTEMPTS
from django_delayq.job.codec import Head, decode_head
from django_delayq.job.outcome import OutcomeKind
from django_delayq.store.client.script import Script, with_store_errors
from django_delayq.store.keys import CATALOGUE
from django_delayq.store.shard import Shard

_TYPES, _PLACES, _RECORDS = Script("audit_types"), Script("audit_places"), Script("audit_records")
_BYTES = Script("audit_bytes")
#: Entries of one slice, and bytes that their bodies may have in all.
_SLICE, _SLICE_BYTES = 100, 8 * 1024 * 1024
#: How often dead letters are counted, where others come and go meanwhile.
_COUNTS = 3
#: The hashes that are walked, each after what its judgement rests on.
_RECORD_NOUNS = ("jobs", "claim_records", "attempts", "unique_keys", "job_extras", "dead_bodies")
#: The history of a dead letter made here.
_UNREADABLE_HISTORY = NO_ATTEMPTS.add(
    worker="", started_us=0, ended_us=None, ending=OutcomeKind.UNREADABLE, error="The stored body cannot be read."
).pack()


@dataclass(frozen=True, slots=True, kw_only=True)
class Inconsistency:
    """One thing that is not as any step leaves it."""

    #: What is wrong: the words of the scripts, MISTYPED for a key of another type than ours, and MISCOUNTED for a wrong
    #: sum of bytes.
    code: str
    key: str
    #: The entry or field; of a mistyped key its type.
    entry: bytes


class ConsistencyCheck:
    """The door of whoever checks one shard."""

    def __init__(self, shard: Shard, *, due_first_us: int, max_payload: int) -> None:
        self._shard = shard
        self._slice = max(1, min(_SLICE, _SLICE_BYTES // max_payload))
        self._head_start_ms = due_first_us // 1_000

    def walk(self, *, repair: bool = False) -> Iterator[Inconsistency]:
        """Yield what is wrong, and with `repair` put it right; O(n log n) in slices of up to 100, with bounded memory.

        One repair can uncover the next fault: repaired is what a walk finds nothing in. Without `repair` one fault may
        show in several records, and a key of another type ends the walk: no script could read it.
        """
        mistyped = self._mistyped(repair=repair)
        yield from mistyped
        if mistyped and not repair:
            return
        #: Ids in a place whose body names no queue: only their entry tells where they are.
        unreadable: set[bytes] = set()
        keys, queues = self._shard.keys, self._shard.read_queues()
        places = [(noun, keys(noun)) for noun in ("dead_letters", "leases")]
        # A job on its way goes from schedule to ready, and from there to the recovered: it is not missed in all.
        waiting = [keys.waiting_places(queue) for queue in queues]
        places += [(noun, place[noun]) for noun in ("scheduled", "ready", "recovered") for place in waiting]
        for noun, place in places:
            for entries, bodies in self._entries(place):
                unreadable.update(
                    entry[:12]
                    for entry, body in zip(entries, bodies, strict=True)
                    if body is not None and _head(body) is None
                )
                words = self.audit_places(noun, place, entries, bodies, repair=repair)
                yield from _findings(words, place, entries)
        for noun in _RECORD_NOUNS:
            for fields, bodies, ids in self._fields(noun, skip=unreadable):
                words = self.audit_records(noun, fields, bodies, ids, repair=repair)
                yield from _findings(words, keys(noun), fields)
        yield from self._miscounted(repair=repair)

    def bodies(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield id and body of every job that has not ended, in no order; one that moves meanwhile may come twice."""
        for found in self._slices("hscan", self._shard.keys("jobs")):
            yield from found

    def audit_types(self, expected: Mapping[str, str], *, repair: bool) -> list[bytes]:
        """Return for each key its type where that is not the expected one, else nothing; with `repair` it is deleted.

        The first key is that of the queues. One atomic step.
        """
        first, *others = expected
        found: list[bytes] = self._shard.run(_TYPES, [int(repair), *expected.values()], queues=first, more_keys=others)
        return found

    def audit_places(
        self, noun: str, place: str, entries: Sequence[bytes], bodies: Sequence[bytes | None], *, repair: bool
    ) -> list[bytes]:
        """Judge up to 500 entries of one place, with `repair` put them right; one atomic step, a word for each."""
        keys, rows = self._rows(entries, bodies, [entry[:12] for entry in entries])
        words: list[bytes] = self._shard.run(
            _PLACES, [noun, self._head_start_ms, int(repair), *rows], place=place, more_keys=keys
        )
        return words

    def audit_records(
        self,
        noun: str,
        fields: Sequence[bytes],
        bodies: Sequence[bytes | None],
        ids: Sequence[bytes],
        *,
        repair: bool,
    ) -> list[bytes]:
        """Judge up to 500 records, with `repair` put them right; one atomic step, a word for each."""
        keys, rows = self._rows(fields, bodies, ids)
        args = [noun, self._head_start_ms, int(repair), _UNREADABLE_HISTORY, *rows]
        words: list[bytes] = self._shard.run(_RECORDS, args, records=self._shard.keys(noun), more_keys=keys)
        return words

    def audit_bytes(self, seen: bytes, counted: int) -> bool:
        """Write the sum of all dead bodies anew; False: it is not what the caller read any more."""
        return bool(self._shard.run(_BYTES, [seen, counted]))

    def _miscounted(self, *, repair: bool) -> Iterator[Inconsistency]:
        """Count the bytes of dead letters, which may come and go: only a sum of a time without any tells something."""
        for _ in range(_COUNTS):
            before = self._dead_now()
            counted = self._count_dead_bytes()
            if self._dead_now() == before:
                seen = before[0] or b""
                if seen != (b"%d" % counted if counted else b""):
                    if repair:
                        self.audit_bytes(seen, counted)
                    yield Inconsistency(code="MISCOUNTED", key=self._shard.keys("dead_bytes"), entry=seen)
                return

    def _dead_now(self) -> list[Any]:
        """Return what changes with each dead letter that comes or goes: their bytes and number, oldest and newest."""
        keys = self._shard.keys
        pipeline = self._shard.client.pipeline(transaction=False)
        pipeline.get(keys("dead_bytes")).zcard(keys("dead_letters"))
        pipeline.zrange(keys("dead_letters"), 0, 0, withscores=True)
        pipeline.zrange(keys("dead_letters"), -1, -1, withscores=True)
        found: list[Any] = with_store_errors(pipeline.execute, self._shard.client)
        return found

    def _count_dead_bytes(self) -> int:
        counted, at, client, keys = 0, 0, self._shard.client, self._shard.keys
        while ids := with_store_errors(partial(client.zrange, keys("dead_letters"), at, at + _SLICE - 1), client):
            pipeline = client.pipeline(transaction=False)
            for raw_id in ids:
                pipeline.hstrlen(keys("dead_bodies"), raw_id)
            counted += sum(with_store_errors(pipeline.execute, client))
            at += len(ids)
        return counted

    def _mistyped(self, *, repair: bool) -> list[Inconsistency]:
        keys = self._shard.keys
        fixed = {keys("queues"): "zset"} | {keys(noun): kind for noun, (kind, _) in CATALOGUE.items()}
        found = self._of_another_type(fixed, repair=repair)
        if not found or repair:
            for queue in self._shard.read_queues():
                per_queue = dict.fromkeys(keys.waiting_places(queue).values(), "zset") | {keys.notify(queue): "list"}
                found += self._of_another_type(per_queue, repair=repair)
        return found

    def _of_another_type(self, expected: Mapping[str, str], *, repair: bool) -> list[Inconsistency]:
        kinds = self.audit_types(expected, repair=repair)
        return [
            Inconsistency(code="MISTYPED", key=key, entry=kind)
            for key, kind in zip(expected, kinds, strict=True)
            if kind
        ]

    def _entries(self, place: str) -> Iterator[tuple[list[bytes], list[bytes | None]]]:
        for found in self._slices("zscan", place):
            entries = [entry for entry, _ in found]
            yield entries, self._read_bodies([entry[:12] for entry in entries])

    def _fields(self, noun: str, *, skip: set[bytes]) -> Iterator[tuple[list[bytes], list[bytes | None], list[bytes]]]:
        """Yield fields, the bodies of their jobs, and the ids of these."""
        for found in self._slices("hscan", self._shard.keys(noun)):
            if noun == "unique_keys":
                ids = [value[:12] for _, value in found]
                yield [field for field, _ in found], self._read_bodies(ids), ids
            elif noun == "jobs":
                sound = [(field, body) for field, body in found if field not in skip]
                fields = [field for field, _ in sound]
                yield fields, list[bytes | None](body for _, body in sound), fields
            else:
                fields = [field for field, _ in found]
                yield fields, self._read_bodies(fields), fields

    def _read_bodies(self, ids: Sequence[bytes]) -> list[bytes | None]:
        found: list[bytes | None] = with_store_errors(
            partial(self._shard.client.hmget, self._shard.keys("jobs"), ids), self._shard.client
        )
        return found

    def _rows(
        self, entries: Sequence[bytes], bodies: Sequence[bytes | None], ids: Sequence[bytes]
    ) -> tuple[list[str], list[Any]]:
        """Return the keys of the bodies' queues, and for each entry: itself, head, member, queue number."""
        numbers: dict[str, int] = {}
        rows: list[Any] = []
        for entry, body, raw_id in zip(entries, bodies, ids, strict=True):
            head = _head(body)
            if body is None or head is None:
                rows += (entry, b"", b"", 0)
            else:
                number = numbers.setdefault(head.queue, len(numbers) + 1)
                rows += (entry, body[: head.size], head.member(raw_id), number)
        keys = self._shard.keys
        return [key for queue in numbers for key in (*keys.of_queue(queue), keys.recovered(queue))], rows

    def _slices(self, scan: str, key: str) -> Iterator[list[tuple[bytes, Any]]]:
        """Yield the entries of a key; those that are there all the while come at least once."""
        cursor, read = 0, getattr(self._shard.client, scan)
        while True:
            cursor, found = with_store_errors(partial(read, key, cursor, count=self._slice), self._shard.client)
            rows = list(found.items() if isinstance(found, dict) else found)
            # A small key is told whole, whatever was asked.
            for at in range(0, len(rows), self._slice):
                yield rows[at : at + self._slice]
            if cursor == 0:
                return


def _head(body: bytes | None) -> Head | None:
    try:
        return decode_head(body or b"")
    except BadBody:
        return None


def _findings(words: Sequence[bytes], key: str, entries: Sequence[bytes]) -> Iterator[Inconsistency]:
    for word, entry in zip(words, entries, strict=True):
        if word != b"OK":
            yield Inconsistency(code=word.decode(), key=key, entry=entry)
