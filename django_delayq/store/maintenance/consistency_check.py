"""Consistency check: compare every key of a shard with the others, in batches; repair what no script could have left.

Safe while the system runs: a script in Redis judges and repairs each batch in one step. It finds the effects of manual
edits, lost writes and broken disks. A shard that only the scripts wrote to has no inconsistency.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django_delayq.clock import estimated_us
from django_delayq.job.attempts import NO_ATTEMPTS
from django_delayq.job.body.codec import try_decode_head
from django_delayq.job.outcome import OutcomeKind
from django_delayq.store.client.script import Script
from django_delayq.store.keys import CATALOGUE
from django_delayq.store.nodes.resp import Part
from django_delayq.store.schedules.stored_schedule import StoredSchedule, read_schedule
from django_delayq.store.shard import Shard

_TYPES, _PLACES, _RECORDS = Script("audit_types"), Script("audit_places"), Script("audit_records")
_TENANTS, _THROTTLES, _LIMITS = Script("audit_tenants"), Script("audit_throttles"), Script("audit_limits")
_SCHEDULES, _ERROR_GROUPS, _BYTES = Script("audit_schedules"), Script("audit_error_groups"), Script("audit_bytes")
#: Entries of one batch, and bytes that their bodies may have together.
_BATCH, _BATCH_BYTES = 100, 8 * 1024 * 1024
#: How often dead letters are counted if their number changes meanwhile.
_COUNTS = 3
#: The hashes that are walked, each after those on which its judgement depends.
_RECORD_NOUNS = ("jobs", "claim_records", "attempts", "unique_keys", "job_extras", "dead_bodies")
_TENANT_NOUNS = ("tenants", "turns", "tenant_jobs")
_LIMIT_NOUNS = (
    *("waiting_for", "claim_limits", "limit_jobs", "outside_slots", "limit_turns"),
    *("next_let_in", "limit_times", "limit_rules", "paused_tasks"),
)
#: Where the id of the job is in an entry of `limit_jobs`, by its first byte: a parked job, one let in, one that runs.
_IDS_IN_LIMIT_JOBS = {b"\0": 35, b"\1": 27, b"\2": 13}
#: The history of a dead letter that a repair makes.
_UNREADABLE_HISTORY = NO_ATTEMPTS.add(
    worker="", started_us=0, ended_us=None, ending=OutcomeKind.UNREADABLE, error="The stored body cannot be read."
).pack()


@dataclass(frozen=True, slots=True, kw_only=True)
class Inconsistency:
    """One entry that no script could have left as it is."""

    #: A word of the scripts, MISTYPED for a key of a wrong type, or MISCOUNTED for a wrong sum of bytes.
    code: str
    key: str
    #: The entry or field; the type of a mistyped key; the sum that was stored.
    entry: bytes


class ConsistencyCheck:
    """API of one shard for its check and repair."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._batch = max(1, min(_BATCH, _BATCH_BYTES // shard.config.tasks.max_payload))
        self._head_start_ms = shard.config.dispatcher.due_first_us // 1_000

    def walk(self, *, repair: bool = False) -> Iterator[Inconsistency]:
        """Yield inconsistencies; with `repair`, repair them. O(n log n) in batches of up to 100, with bounded memory.

        One repair can uncover the next inconsistency, so repeat until a walk yields none. Without `repair` one fault
        may show in several records, and a key of a wrong type ends the walk, since no script can read it.
        """
        mistyped = self._mistyped(repair=repair)
        yield from mistyped
        if mistyped and not repair:
            return
        #: Ids in a place whose body names no queue: only their entry shows where they are.
        unreadable: set[bytes] = set()
        keys, queues = self._shard.keys, self._shard.read_queues()
        places = [(noun, keys(noun)) for noun in ("dead_letters", "leases")]
        # In the order in which a job moves: one that moves meanwhile is met at least once.
        waiting = [keys.named(queue) for queue in queues]
        places += [(noun, place[noun]) for noun in ("scheduled", "ready", "recovered", "parked") for place in waiting]
        for noun, place in places:
            for entries, bodies in self._entries(place):
                unreadable.update(
                    entry[:12]
                    for entry, body in zip(entries, bodies, strict=True)
                    if body is not None and try_decode_head(body) is None
                )
                words = self.audit_places(noun, place, entries, bodies, repair=repair)
                yield from _findings(words, place, entries)
        for noun in _RECORD_NOUNS:
            for fields, bodies, ids in self._fields(noun, skip=unreadable):
                words = self.audit_records(noun, fields, bodies, ids, repair=repair)
                yield from _findings(words, keys(noun), fields)
        for noun in _TENANT_NOUNS:
            for fields, ids in self._tenant_records(noun):
                words = self.audit_tenants(noun, fields, ids, repair=repair)
                yield from _findings(words, keys(noun), fields)
        for noun in _LIMIT_NOUNS:
            for fields, ids in self._limit_records(noun):
                words = self.audit_limits(noun, fields, ids, repair=repair)
                yield from _findings(words, keys(noun), fields)
        for noun in ("schedules", "next_planting"):
            for ids, records in self._schedule_records(noun):
                words = self.audit_schedules(noun, ids, records, repair=repair)
                yield from _findings(words, keys(noun), ids)
        for noun in ("dead_letters", "groups_of_dead", "dead_by_group", "error_groups"):
            for found in self._scan("HSCAN" if CATALOGUE[noun][0] == "hash" else "ZSCAN", keys(noun)):
                entries = [entry for entry, _ in found]
                yield from _findings(self.audit_error_groups(noun, entries, repair=repair), keys(noun), entries)
        for command, noun in (("HSCAN", "throttles"), ("ZSCAN", "throttle_ends")):
            for found in self._scan(command, keys(noun)):
                digests = [digest for digest, _ in found]
                yield from _findings(self.audit_throttles(digests, repair=repair), keys(noun), digests)
        yield from self._miscounted(repair=repair)

    def bodies(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield id and body of every job that has not ended, in no order; one may come twice."""
        for found in self._scan("HSCAN", self._shard.keys("jobs")):
            yield from found

    def running(self) -> set[bytes]:
        """Return the ids of the jobs that run. O(n) of those."""
        found = self._scan("ZSCAN", self._shard.keys("leases"))
        return {lease[:12] for rows in found for lease, _ in rows}

    def audit_types(self, expected: Mapping[str, str], *, repair: bool) -> list[bytes]:
        """Return for each key its type if that is not the expected one, else b""; with `repair`, delete the key.

        The first key is that of the queues. One atomic round trip.
        """
        first, *others = expected
        found: list[bytes] = self._shard.run(_TYPES, [int(repair), *expected.values()], queues=first, more_keys=others)
        return found

    def audit_places(
        self, noun: str, place: str, entries: Sequence[bytes], bodies: Sequence[bytes | None], *, repair: bool
    ) -> list[bytes]:
        """Judge up to 500 entries of one place, and with `repair` repair them. Return a word for each.

        One atomic round trip.
        """
        keys, rows = self._rows(entries, bodies, [entry[:12] for entry in entries])
        words: list[bytes] = self._shard.run(
            _PLACES, [noun, self._head_start_ms, int(repair), *rows], records=place, more_keys=keys
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
        """Judge up to 500 records, and with `repair` repair them. Return a word for each. One atomic round trip."""
        keys, rows = self._rows(fields, bodies, ids)
        args = [noun, self._head_start_ms, int(repair), _UNREADABLE_HISTORY, *rows]
        words: list[bytes] = self._shard.run(_RECORDS, args, records=self._shard.keys(noun), more_keys=keys)
        return words

    def audit_tenants(self, noun: str, entries: Sequence[bytes], ids: Sequence[bytes], *, repair: bool) -> list[bytes]:
        """Judge up to 500 records of tenants, and with `repair` repair them. Return a word for each.

        `ids` has the job of each, b"" for one that is of no job. One atomic round trip.
        """
        keys, rows = self._rows(entries, self._read_bodies(ids), ids)
        judged = [part for at in range(0, len(rows), 4) for part in (rows[at], *rows[at + 2 : at + 4])]
        words: list[bytes] = self._shard.run(
            _TENANTS, [noun, int(repair), *judged], records=self._shard.keys(noun), more_keys=keys
        )
        return words

    def audit_throttles(self, digests: Sequence[bytes], *, repair: bool) -> list[bytes]:
        """Judge up to 500 windows, and with `repair` delete damaged ones. Return a word for each.

        One atomic round trip.
        """
        words: list[bytes] = self._shard.run(_THROTTLES, [int(repair), *digests])
        return words

    def audit_limits(self, noun: str, entries: Sequence[bytes], ids: Sequence[bytes], *, repair: bool) -> list[bytes]:
        """Judge up to 500 records of limits, and with `repair` repair them. Return a word for each.

        `ids` has the job of each, b"" for one that is of no job. One atomic round trip.
        """
        keys, rows = self._rows(entries, self._read_bodies(ids), ids)
        words: list[bytes] = self._shard.run(
            _LIMITS, [noun, int(repair), *rows], records=self._shard.keys(noun), more_keys=keys
        )
        return words

    def audit_schedules(
        self, noun: str, ids: Sequence[bytes], records: Sequence[bytes | None], *, repair: bool
    ) -> list[bytes]:
        """Judge up to 500 records of schedules, and with `repair` repair them. Return a word for each.

        One atomic round trip.
        """
        now_us, args = estimated_us(self._shard.clock), list[Part]()
        for id, record in zip(ids, records, strict=True):
            args += (id, *_next_of(read_schedule(self._shard, id, record), now_us))
        words: list[bytes] = self._shard.run(_SCHEDULES, [noun, int(repair), *args])
        return words

    def audit_error_groups(self, noun: str, entries: Sequence[bytes], *, repair: bool) -> list[bytes]:
        """Judge up to 500 entries of dead letters and their error groups, and with `repair` repair them.

        Return a word for each. One atomic round trip.
        """
        words: list[bytes] = self._shard.run(_ERROR_GROUPS, [noun, int(repair), *entries])
        return words

    def audit_bytes(self, seen: bytes, counted: int) -> bool:
        """Replace the sum of the bytes of dead letters. False: it is not `seen` any more."""
        return bool(self._shard.run(_BYTES, [seen, counted]))

    def _miscounted(self, *, repair: bool) -> Iterator[Inconsistency]:
        """Compare the stored sum of the bytes of dead letters with a count during which none came or went."""
        for _ in range(_COUNTS):
            before = self._read_dead()
            counted = self._count_dead_bytes()
            if self._read_dead() == before:
                seen = before[0] or b""
                if seen != (b"%d" % counted if counted else b""):
                    if repair:
                        self.audit_bytes(seen, counted)
                    yield Inconsistency(code="MISCOUNTED", key=self._shard.keys("dead_bytes"), entry=seen)
                return

    def _read_dead(self) -> list[Any]:
        """Return what every added or removed dead letter changes: bytes, number, oldest and newest."""
        letters = self._shard.keys("dead_letters")
        oldest, newest = (["ZRANGE", letters, at, at, "WITHSCORES"] for at in (0, -1))
        return self._shard.execute_all([["GET", self._shard.keys("dead_bytes")], ["ZCARD", letters], oldest, newest])

    def _count_dead_bytes(self) -> int:
        counted, at, shard, keys = 0, 0, self._shard, self._shard.keys
        while ids := shard.execute("ZRANGE", keys("dead_letters"), at, at + _BATCH - 1):
            counted += sum(shard.execute_all([["HSTRLEN", keys("dead_bodies"), raw_id] for raw_id in ids]))
            at += len(ids)
        return counted

    def _mistyped(self, *, repair: bool) -> list[Inconsistency]:
        keys = self._shard.keys
        fixed = {keys("queues"): "zset"} | {keys(noun): kind for noun, (kind, _) in CATALOGUE.items()}
        found = self._of_wrong_type(fixed, repair=repair)
        if not found or repair:
            for queue in self._shard.read_queues():
                per_queue = dict.fromkeys(keys.named(queue).values(), "zset") | {keys.notify(queue): "list"}
                found += self._of_wrong_type(per_queue, repair=repair)
        return found

    def _of_wrong_type(self, expected: Mapping[str, str], *, repair: bool) -> list[Inconsistency]:
        kinds = self.audit_types(expected, repair=repair)
        return [
            Inconsistency(code="MISTYPED", key=key, entry=kind)
            for key, kind in zip(expected, kinds, strict=True)
            if kind
        ]

    def _entries(self, place: str) -> Iterator[tuple[list[bytes], list[bytes | None]]]:
        for found in self._scan("ZSCAN", place):
            entries = [entry for entry, _ in found]
            yield entries, self._read_bodies([entry[:12] for entry in entries])

    def _fields(self, noun: str, *, skip: set[bytes]) -> Iterator[tuple[list[bytes], list[bytes | None], list[bytes]]]:
        """Yield fields, and body and id of the job of each."""
        for found in self._scan("HSCAN", self._shard.keys(noun)):
            if noun == "unique_keys":
                ids = [value[:12] for _, value in found]
                yield [field for field, _ in found], self._read_bodies(ids), ids
            elif noun == "jobs":
                kept = [(field, body) for field, body in found if field not in skip]
                fields = [field for field, _ in kept]
                yield fields, list[bytes | None](body for _, body in kept), fields
            else:
                fields = [field for field, _ in found]
                yield fields, self._read_bodies(fields), fields

    def _tenant_records(self, noun: str) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """Yield records of tenants, and the id of the job of each, or b""."""
        for found in self._scan("HSCAN" if noun == "tenants" else "ZSCAN", self._shard.keys(noun)):
            entries = [entry for entry, _ in found]
            # The layout is in _turns.lua.
            starts = [(15 if entry[:1] == b"\2" else 22) if noun == "tenant_jobs" else len(entry) for entry in entries]
            yield entries, [entry[at : at + 12] for entry, at in zip(entries, starts, strict=True)]

    def _limit_records(self, noun: str) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """Yield records of limits, and the id of the job of each, or b""."""
        for found in self._scan("HSCAN" if CATALOGUE[noun][0] == "hash" else "ZSCAN", self._shard.keys(noun)):
            entries = [entry for entry, _ in found]
            if noun == "limit_jobs":
                starts = [_IDS_IN_LIMIT_JOBS.get(entry[:1], len(entry)) for entry in entries]
            else:
                starts = [0 if noun in ("waiting_for", "claim_limits") else len(entry) for entry in entries]
            yield entries, [entry[at : at + 12] for entry, at in zip(entries, starts, strict=True)]

    def _schedule_records(self, noun: str) -> Iterator[tuple[list[bytes], list[bytes | None]]]:
        """Yield ids of schedules, and their records; without those, which no script needs, for `next_planting`."""
        for found in self._scan("HSCAN" if noun == "schedules" else "ZSCAN", self._shard.keys(noun)):
            yield [id for id, _ in found], [record if noun == "schedules" else None for _, record in found]

    def _read_bodies(self, ids: Sequence[bytes]) -> list[bytes | None]:
        found: list[bytes | None] = self._shard.execute("HMGET", self._shard.keys("jobs"), *ids) if ids else []
        return found

    def _rows(
        self, entries: Sequence[bytes], bodies: Sequence[bytes | None], ids: Sequence[bytes]
    ) -> tuple[list[str], list[Any]]:
        """Return the keys of the queues that the bodies name, and per entry: itself, head, member, queue number."""
        numbers: dict[str, int] = {}
        rows: list[Any] = []
        for entry, body, raw_id in zip(entries, bodies, ids, strict=True):
            head = try_decode_head(body)
            if body is None or head is None:
                rows += (entry, b"", b"", 0)
            else:
                number = numbers.setdefault(head.queue, len(numbers) + 1)
                rows += (entry, body[: head.size], head.member(raw_id), number)
        return [key for queue in numbers for key in self._shard.keys.named(queue).values()], rows

    def _scan(self, command: str, key: str) -> Iterator[list[tuple[bytes, Any]]]:
        return self._shard.scan(key, command=command, batch=self._batch)


def _next_of(schedule: StoredSchedule | None, now_us: int) -> tuple[int, int, int]:
    """Return 1 if a schedule has an occurrence that is to be planted, its version, and its last occurrence."""
    if schedule is None:
        return 0, 0, 0
    record, definition = schedule.record, schedule.definition
    # A later release may have planted the last job of one that this process cannot read.
    has_next = definition is not None and definition.schedule.next_after(max(record.occurrence_us, now_us)) is not None
    return int(has_next), record.version, record.occurrence_us


def _findings(words: Sequence[bytes], key: str, entries: Sequence[bytes]) -> Iterator[Inconsistency]:
    for word, entry in zip(words, entries, strict=True):
        if word != b"OK":
            yield Inconsistency(code=word.decode(), key=key, entry=entry)
