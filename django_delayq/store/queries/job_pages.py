"""Job pages: jobs as Redis holds them, and pages of them. A row reads its stored bytes at the first use."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from time import monotonic
from typing import Any, Self

from django_delayq import runtime
from django_delayq.job.attempts import NO_ATTEMPTS, AttemptHistory
from django_delayq.job.body.codec import Head, try_decode, try_decode_head
from django_delayq.job.ids import to_text
from django_delayq.job.job import Flag, Job, LimitUse, State, due_of_rank
from django_delayq.job.progress import Progress
from django_delayq.job.result import Result
from django_delayq.job.security.attempts_record import read_attempts
from django_delayq.job.security.encryption import PROGRESS, Cipher
from django_delayq.store.digests import limit_digest, paused_task_digest
from django_delayq.store.records import ClaimRecord, DeadLetterRecord

#: Larger than every score that a script writes.
_END = 2.0**53
#: Values that `page.lua` returns of a row.
_CELLS = 8
_NO_HEAD = Head(priority=0, flags=Flag(0), queue="", task="", size=0)


@dataclass(frozen=True)
class JobRow:
    """One job as it is now: a row of a page, or what `find()` returns."""

    #: Id, priority byte and flags byte; the id alone of a dead letter, and of a job without a readable body.
    member: bytes
    shard: int
    state: State
    #: Due time, rank, lease end (0 = unknown), time of death, or end of a job whose result is kept: with `member`, the
    #: cursor of this row. A fraction only if it was edited manually.
    score: float
    #: The body, cut if it is large, and its size in bytes before the cut.
    stored: bytes | None = field(repr=False)
    size: int
    attempts_record: bytes | None = field(repr=False)
    #: Of a claimed job, with the name of its worker.
    claim_record: ClaimRecord = ClaimRecord(0, 0)
    worker: str = ""
    #: Of a parked job: the digest of the limit that it waits for.
    limit: bytes = b""
    due_first_us: int = 0
    #: The queue whose place holds it; empty for claimed and dead jobs.
    found_in: str = ""
    #: How it ended, while its result is kept.
    result: Result | None = field(default=None, repr=False)
    #: Decrypts the body and the attempts; None if there is nothing to decrypt.
    cipher: Cipher | None = field(default=None, repr=False, compare=False)

    @property
    def raw_id(self) -> bytes:
        """The job's id."""
        return self.member[:12]

    @property
    def id(self) -> str:
        """The job's id as users see it."""
        return to_text(self.raw_id, self.shard)

    @property
    def cursor(self) -> tuple[float, bytes]:
        """Where the next page continues."""
        return self.score, self.member

    @property
    def moment_us(self) -> int:
        """When it is due, was due, died, or ended with a result: µs since the epoch."""
        return whole(self.score) if self.due_us is None else self.due_us

    @property
    def claimed_us(self) -> int | None:
        """When the running attempt was claimed (µs since the epoch); None if none runs, or that is lost."""
        return self.claim_record.claimed_us or None

    @property
    def progress(self) -> Progress | None:
        """How far the running attempt is; None if none runs, or it reported nothing."""
        return Progress.unpack(self.claim_record.progress) if self.claim_record.progress else None

    @property
    def stops(self) -> bool:
        """Whether the running job was asked to stop."""
        return self.claim_record.stop_by_us is not None

    @property
    def lease_end_us(self) -> int | None:
        """When the lease of a claimed job ends (µs since the epoch); None if that is unknown."""
        return (whole(self.score) or None) if self.state is State.CLAIMED else None

    @property
    def waits(self) -> bool:
        """Whether it waits for its time or for a worker."""
        return self.state in (State.SCHEDULED, State.READY)

    @property
    def waiting_for(self) -> str:
        """What it waits for, the value of an `OutcomeKind`, if no worker could run it so far; else ""."""
        return self.last_attempt.waiting_for if self.waits and self.last_attempt.waiting_since_us else ""

    @property
    def task_is_paused(self) -> bool:
        """Whether it is parked because its task is paused."""
        return bool(self.limit) and self.limit == paused_task_digest(self.task)

    @property
    def limit_use(self) -> LimitUse | None:
        """The limit that a parked job waits for; None also if its body does not tell."""
        limits = self.job.limits if self.limit and self.job else ()
        return next((use for use in limits if limit_digest(*use) == self.limit), None)

    @property
    def parked_for(self) -> str:
        """What a parked job waits for: "limit stripe", "limit stripe (4711)", or "paused task"; else ""."""
        if self.task_is_paused:
            return "paused task"
        if use := self.limit_use:
            return f"limit {use.name}" if use.value is None else f"limit {use.name} ({use.value})"
        return "limit" if self.limit else ""

    @property
    def expires_us(self) -> int | None:
        """When it expires if it has not begun by then (µs since the epoch); None if never, or if that is not known."""
        return self.job.expiry.moment_us if self.job and self.job.expiry else None

    def is_overdue(self, now_us: int) -> bool:
        """Return whether it waits although its expiry is over: a worker ends it when its turn comes."""
        return self.waits and self.expires_us is not None and self.expires_us < now_us

    @property
    def ended(self) -> bool:
        """Whether it is in no place any more: it ended, or never existed."""
        return self.state is State.GONE or self.result is not None

    @cached_property
    def attempts(self) -> AttemptHistory:
        """The attempts so far, and their history."""
        if self.cipher is None:
            return NO_ATTEMPTS
        return read_attempts(self.attempts_record, raw_id=self.raw_id, cipher=self.cipher)

    @cached_property
    def last_attempt(self) -> AttemptHistory:
        """The same, but maybe without earlier attempts than the last one: a history may have 28 kB."""
        if self.cipher is None:
            return NO_ATTEMPTS
        return read_attempts(self.attempts_record, raw_id=self.raw_id, cipher=self.cipher, last_only=True)

    @cached_property
    def head(self) -> Head:
        """The head of the body; an empty one if it cannot be read."""
        return try_decode_head(self.stored) or _NO_HEAD

    @property
    def task(self) -> str:
        """The task's name; empty if the head cannot be read."""
        return self.head.task

    @property
    def queue(self) -> str:
        """The queue in which it waits, else the one that its body names; empty if the head cannot be read."""
        return self.found_in or self.head.queue

    @cached_property
    def job(self) -> Job | None:
        """The job; None if its body cannot be read or was cut."""
        return None if isinstance(self._read, str) else self._read

    @property
    def recovered(self) -> bool:
        """Whether it is ready and waits for a process of its own: its last attempt crashed."""
        return self.state is State.READY and self.last_attempt.crash_suspected

    @property
    def fault(self) -> str:
        """Why there is no `job`, or ""."""
        return self._read if isinstance(self._read, str) else ""

    @property
    def is_cut(self) -> bool:
        """Whether the body was cut."""
        return self.stored is not None and len(self.stored) < self.size

    @property
    def due_us(self) -> int | None:
        """When it is or was due (µs since the epoch, to the millisecond once it is ready); None if it died or ended."""
        match self.state:
            case State.SCHEDULED:
                return whole(self.score)
            case State.READY:
                return self._due_of(whole(self.score))
            case State.CLAIMED:
                return self._due_of(self.claim_record.rank) if self.claim_record.rank else None
            case _:
                return None

    @cached_property
    def _read(self) -> Job | str:
        if self.is_cut:
            return f"too long to be shown here ({self.size:,} bytes)"
        job, fault = try_decode(self.stored, raw_id=self.raw_id, shard=self.shard, cipher=self.cipher)
        return job or str(fault)

    def _due_of(self, rank: int) -> int:
        return due_of_rank(rank, self.member[13] if len(self.member) > 13 else 0, due_first_us=self.due_first_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPage:
    """Rows of one place, or of several merged; lowest score first."""

    #: Rows before the first one that was read, and all rows: within the requested scores.
    rank: int
    total: int
    rows: list[JobRow]
    #: Rows that were read: more than `rows` if not all matched.
    scanned: int
    #: Cursor from which the next page continues in this direction; None: no rows are left.
    end: tuple[float, bytes] | None

    def joined(self, following: Self, *, before: bool) -> Self:
        """Return this page and the one that continues it, as one."""
        return replace(
            following,
            rank=following.rank if before else self.rank,
            rows=following.rows + self.rows if before else self.rows + following.rows,
            scanned=self.scanned + following.scanned,
        )


def parse_page(
    reply: Sequence[Any],
    *,
    shard: int,
    cipher: Cipher,
    state: State,
    due_first_us: int,
    found_in: Sequence[str],
    before: bool,
    count: int,
    match: Callable[[JobRow], bool] | None,
) -> JobPage:
    """Return the page of a reply of `page.lua`: up to `count` rows that match.

    `found_in` names the queue of each place that the script read.
    """
    rank, total, more = reply[:3]
    found = [
        read_row(
            reply[at : at + _CELLS],
            shard=shard,
            cipher=cipher,
            state=state,
            due_first_us=due_first_us,
            found_in=found_in,
        )
        for at in range(3, len(reply), _CELLS)
    ]
    scanned = list(_scan(reversed(found) if before else found, count, match))
    rows = [row for row, matches in scanned if matches]
    has_more = bool(more) or len(scanned) < len(found)
    if before:
        rows.reverse()
        rank += len(found) - len(scanned)
    end = scanned[-1][0].cursor if scanned and has_more else None
    return JobPage(rank=rank, total=total, rows=rows, scanned=len(scanned), end=end)


def _scan(found: Any, count: int, match: Callable[[JobRow], bool] | None) -> Iterator[tuple[JobRow, bool]]:
    """Yield rows and whether each matches, until `count` do or the time is up."""
    if match is None:
        yield from ((row, True) for row in islice(found, count))
        return
    until, left = monotonic() + runtime.current().bounds.matching_seconds, count
    for row in found:
        matches = match(row)
        yield row, matches
        left -= matches
        if not left or monotonic() > until:
            return


def read_row(
    cells: Sequence[Any],
    *,
    shard: int,
    cipher: Cipher,
    state: State,
    due_first_us: int,
    found_in: Sequence[str],
    result: Result | None = None,
) -> JobRow:
    """Return the job of the cells that `page.lua` returns of a row."""
    member, place, score, stored, size, attempts, claim_record, worker_name = cells
    if state is State.DEAD:
        attempts, _, body = DeadLetterRecord.unpack(stored)
        size, stored = size - (len(stored or b"") - len(body)), body
    # A ready job has no claim, and a parked one has its limit in that place.
    limit = (claim_record or b"") if state is State.READY else b""
    claim = ClaimRecord.unpack(None if limit else claim_record)
    if claim.progress:
        claim = claim._replace(progress=cipher.try_open(member[:12], PROGRESS, claim.progress))
    return JobRow(
        member=member,
        shard=shard,
        state=state,
        score=_exact(score),
        stored=stored,
        size=size,
        attempts_record=attempts,
        claim_record=claim,
        worker=worker_name.decode(errors="replace") if worker_name else "",
        limit=limit,
        due_first_us=due_first_us,
        found_in=found_in[place - 1],
        result=result,
        cipher=cipher,
    )


def whole(score: Any) -> int:
    """Return a score as a whole number; one that was edited manually and is out of range, as the nearest in range."""
    return int(min(max(float(score), -_END), _END))


def _exact(score: Any) -> float:
    # The score is part of the cursor, so two different scores must stay different.
    value = float(score)
    return int(value) if abs(value) <= _END and value.is_integer() else value
