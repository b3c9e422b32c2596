"""Records: what scripts store and Python reads. A short or foreign record reads as empty, never as an error."""

from dataclasses import dataclass
from struct import Struct
from typing import ClassVar, NamedTuple, Self

from django_delayq.clock import SECOND_US

#: What the head of a schedule's record is in Lua, and the flag with which the id of a running job follows.
_SCHEDULE_HEAD, _HAS_RUNNING = Struct(">BBBBI5s12s5s5sB"), 8
_NO_JOB = bytes(12)
_DECLARED_BY = Struct(">8sQ16s")


class ClaimRecord(NamedTuple):
    """What `claim_records` holds of a claimed job: its token (16 bytes), then these fields.

    Only scripts read the due time of a job that was claimed before it was due; `rank` has it to the millisecond.
    """

    #: µs since the epoch when it was claimed; 0 if that is lost.
    claimed_us: int
    rank: int
    #: If somebody asked the job to stop: when its code must have ended, µs since the epoch, Redis's clock.
    stop_by_us: int | None = None
    #: The stored form of its `Progress`; empty if the job reported none.
    progress: bytes = b""

    @classmethod
    def of(cls, lease: bytes, record: bytes | None) -> Self:
        """Read the record of a lease. That of another token says nothing about it, as for the scripts."""
        return cls.unpack(record if record and record[:16] == lease[14:] else None)

    @classmethod
    def unpack(cls, record: bytes | None) -> Self:
        """Read a field of `claim_records`."""
        record = record or b""
        flags, at, stop_by_us = int.from_bytes(record[32:33]), 33, None
        if flags & 1 and len(record) >= at + 8:
            stop_by_us, at = int.from_bytes(record[at : at + 8]), at + 8
        if flags & 2 and len(record) >= at + 8:
            at += 8
        return cls(
            claimed_us=int.from_bytes(record[16:24]),
            rank=int.from_bytes(record[24:32]),
            stop_by_us=stop_by_us,
            progress=record[at:],
        )


class ExtrasRecord(NamedTuple):
    """What `job_extras` holds of a job: a byte of flags, then the fields below that have bytes."""

    #: Flag 1: the digest of its unique key (16 bytes); empty if it has none.
    digest: bytes = b""
    #: Flag 2: the job holds the key only while it waits.
    until_start: bool = False
    #: Flag 4: calls of the job are debounced. When the first of them came, µs since the epoch; scripts replace it.
    first_call_us: int | None = None
    #: Flag 16: the digest of its tenant's name (8 bytes), of "" for a job of a fair queue without a tenant; empty if it
    #: has neither. It is stored last, behind the weight.
    tenant: bytes = b""
    #: The tenant's weight in the job's queue, 1 to 100; 0 if the queue is not fair.
    weight: int = 0
    #: Flag 32: its limits, as digests of 12 bytes, and its cost under each; up to 127.
    limits: tuple[tuple[bytes, int], ...] = ()
    #: The job is dropped if a limit keeps it from beginning.
    drops: bool = False
    #: Flag 8, in place of flag 1: the digest of the key whose further calls the job throttles; it holds no key.
    throttle: bytes = b""
    #: Flag 64, in place of flags 1 and 8: the id of its recurring schedule (8 bytes), and the version for which it was
    #: planted, of 4 bytes; 0: it is a job of `run_now()`. Scripts add flag 128 when it begins.
    schedule: bytes = b""
    schedule_version: int = 0

    def pack(self) -> bytes:
        """Return the stored form."""
        has_first_call = self.first_call_us is not None
        flags = bool(self.digest) + 2 * self.until_start + 4 * has_first_call + 8 * bool(self.throttle)
        flags += 16 * bool(self.tenant) + 32 * bool(self.limits) + 64 * bool(self.schedule)
        schedule = self.schedule + self.schedule_version.to_bytes(4) if self.schedule else b""
        first_call = b"" if self.first_call_us is None else self.first_call_us.to_bytes(8)
        tenant = bytes((self.weight,)) + self.tenant if self.tenant else b""
        limits = b"".join(digest + cost.to_bytes(2) for digest, cost in self.limits)
        if limits:
            limits += bytes((len(self.limits) + 128 * self.drops,))
        return b"".join((bytes((flags,)), schedule, self.digest, self.throttle, first_call, limits, tenant))

    @classmethod
    def unpack(cls, stored: bytes) -> Self:
        """Read a field of `job_extras`, or the same bytes of a dead letter."""
        flags = stored[0] if stored else 0
        tenant, weight = (stored[-8:], stored[-9]) if flags & 16 and len(stored) >= 10 else (b"", 0)
        if flags & 64 and len(stored) >= 13:
            version = int.from_bytes(stored[9:13])
            return cls(tenant=tenant, weight=weight, schedule=stored[1:9], schedule_version=version)
        limits = _limits(stored[:-9] if tenant else stored) if flags & 32 else ()
        if len(stored) < 17 or not flags & 1:
            throttle = stored[1:17] if len(stored) >= 17 and flags & 8 else b""
            return cls(tenant=tenant, weight=weight, throttle=throttle, limits=limits)
        return cls(
            digest=stored[1:17],
            until_start=bool(flags & 2),
            first_call_us=int.from_bytes(stored[17:25]) if flags & 4 and len(stored) >= 25 else None,
            tenant=tenant,
            weight=weight,
            limits=limits,
        )


class ScheduleRecord(NamedTuple):
    """What `schedules` holds of a recurring schedule; the layout is in `_schedules.lua`."""

    #: Flags: 1 it is paused, 2 it was declared in code, 4 the last dispatcher that planted could not read it.
    flags: int
    #: What becomes of a job while another one runs: a number of `overlap_number()`.
    overlap: int
    #: After how many failures in a row it pauses; 0: never.
    pause_after: int
    failures: int
    #: Changes with each change by a person or a declaration.
    version: int
    #: The last occurrence that has a job, or else the second after which the next one is; µs since the epoch.
    occurrence_us: int
    #: The id of that job until it begins or ends; 12 zero bytes if there is none.
    planted: bytes
    #: When a job of it began last, and when one ended last, µs since the epoch, to the second; 0: none did.
    last_start_us: int
    last_end_us: int
    #: The id of its running job, also while it waits for a retry; 12 zero bytes if there is none.
    running: bytes
    #: The latest first, at most 20 of 3 bytes; `runs` reads them.
    outcomes: bytes
    definition: bytes

    @classmethod
    def unpack(cls, stored: bytes | None) -> Self | None:
        """Read a field of `schedules`; None if it is missing or damaged."""
        if stored is None or len(stored) < _SCHEDULE_HEAD.size:
            return None
        flags, overlap, pause_after, failures, version, *more, count = _SCHEDULE_HEAD.unpack_from(stored)
        occurrence, planted, last_start, last_end = more
        start, running = _SCHEDULE_HEAD.size, _NO_JOB
        if flags & _HAS_RUNNING:
            flags, running, start = flags - _HAS_RUNNING, stored[start : start + 12], start + 12
        end = start + 3 * count
        return cls(
            flags,
            overlap,
            pause_after,
            failures,
            version,
            int.from_bytes(occurrence) * SECOND_US,
            planted,
            int.from_bytes(last_start) * SECOND_US,
            int.from_bytes(last_end) * SECOND_US,
            running,
            stored[start:end],
            stored[end:],
        )

    @property
    def runs(self) -> list[tuple[int, int]]:
        """What became of its last jobs, the latest first, and for how many ms each ran."""
        # Not read with the record: a dispatcher reads many records, and no outcome.
        numbers, first, second = (self.outcomes[at::3] for at in range(3))
        return [
            (number, _duration_ms(256 * high + low)) for number, high, low in zip(numbers, first, second, strict=False)
        ]


@dataclass(frozen=True, slots=True)
class DeclaredBy:
    """What `declared_by` holds of the process whose declarations of recurring schedules apply."""

    SIZE: ClassVar[int] = _DECLARED_BY.size
    #: The code of a dispatcher, or of one in a worker.
    process: bytes
    #: When that process started, µs since the epoch.
    started_us: int
    #: A digest of what it declared, 16 bytes.
    digest: bytes

    def pack(self) -> bytes:
        """Return its 32 bytes."""
        return _DECLARED_BY.pack(self.process, self.started_us, self.digest)

    @classmethod
    def unpack(cls, stored: bytes) -> Self | None:
        """Read its bytes; None if there are too few."""
        return cls(*_DECLARED_BY.unpack(stored)) if len(stored) == _DECLARED_BY.size else None

    @staticmethod
    def count(size: int) -> int:
        """Return how many schedules are declared, given the length of `declared_by`."""
        return max(0, size - _DECLARED_BY.size) // 8


def _limits(stored: bytes) -> tuple[tuple[bytes, int], ...]:
    """Return the limits and costs at the end of an extras record without its tenant, before its last byte."""
    start = len(stored) - 1 - 14 * (stored[-1] % 128)
    entries = (stored[at : at + 14] for at in range(max(1, start), len(stored) - 14, 14))
    return tuple((entry[:12], int.from_bytes(entry[12:])) for entry in entries)


def _duration_ms(packed: int) -> int:
    """Return a duration that is stored as 5 bits of exponent and 11 bits of ms."""
    return (packed & 0x7FF) << (packed >> 11)


class DeadLetterRecord(NamedTuple):
    """What `dead_bodies` holds of a dead letter: two lengths, its member (14 bytes), then these fields."""

    attempts: bytes
    extras: bytes
    body: bytes

    @classmethod
    def unpack(cls, stored: bytes | None) -> Self:
        """Read a field of `dead_bodies`; its body may be cut at the end."""
        return cls(*_split(stored, start=22))


class ResultRecord(NamedTuple):
    """What `results` holds of a job that ended: two lengths, then these fields; `ending` is the JSON of a `Result`."""

    attempts: bytes
    ending: bytes
    body: bytes

    @classmethod
    def unpack(cls, stored: bytes | None) -> Self:
        """Read the one element of `results`."""
        return cls(*_split(stored, start=8))


def _split(stored: bytes | None, *, start: int) -> tuple[bytes, bytes, bytes]:
    """Return the two fields that begin at `start`, whose lengths are the first 8 bytes, and the rest."""
    stored = stored or b""
    second = start + int.from_bytes(stored[:4])
    rest = second + int.from_bytes(stored[4:8])
    return stored[start:second], stored[second:rest], stored[rest:]


def worker_of(lease: bytes) -> bytes:
    """Return the id of the worker that holds a lease: the lease is a member (14 bytes), then a token that begins so."""
    return lease[14:22]
