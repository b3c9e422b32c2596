"""Rows: one job as lists show it, and a page of them; what is stored is read at its first use."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from time import monotonic
from typing import Any

from django_delayq.exceptions import BadBody
from django_delayq.job.attempts import AttemptHistory
from django_delayq.job.codec import Head, decode, decode_head
from django_delayq.job.ids import to_text
from django_delayq.job.job import Flag, Job, State, due_of_rank
from django_delayq.store.records import DeadLetterRecord, RunningRecord

#: No score of ours is as large.
_END = 2.0**53
#: Seconds for which one page may look for rows that match.
_LOOKING = 0.1
#: What `page.lua` returns of a row.
_CELLS = 8
_NO_HEAD = Head(priority=0, flags=Flag(0), queue="", task="", size=0)


@dataclass(frozen=True)
class JobRow:
    """One row of a page."""

    member: bytes
    shard: int
    state: State
    #: Due time, rank, lease end or time of death: with `member`, the cursor of this row. No whole number only where
    #: somebody wrote it by hand.
    score: float
    #: The body, cut at LARGE_BODY, and its whole size in bytes, with what a dead letter keeps beside it.
    stored: bytes | None = field(repr=False)
    size: int
    attempts: AttemptHistory = field(repr=False)
    #: Of a running one: when it was claimed (µs since the epoch), its rank, and the name of its worker.
    running: RunningRecord = RunningRecord(0, 0)
    worker: str = ""
    due_first_us: int = 0
    #: The queue it was found in; empty for running and dead ones.
    found_in: str = ""

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
        """Where a next page goes on."""
        return self.score, self.member

    @property
    def moment_us(self) -> int:
        """When it is due, was due, or died."""
        return whole(self.score) if self.due_us is None else self.due_us

    @cached_property
    def head(self) -> Head:
        """What stands in front of the body; empty where that cannot be read."""
        try:
            return decode_head(self.stored or b"")
        except BadBody:
            return _NO_HEAD

    @property
    def task(self) -> str:
        """The task's name as far as the body can be read."""
        return self.head.task

    @property
    def queue(self) -> str:
        """The queue it waits in; of others, the name that their bodies tell, as far as they can be read."""
        return self.found_in or self.head.queue

    @cached_property
    def job(self) -> Job | None:
        """The job, or None where its body cannot be read, or is longer than was looked at."""
        return None if isinstance(self._read, str) else self._read

    @property
    def recovered(self) -> bool:
        """Whether it is ready, and waits for a process of its own: its last attempt crashed."""
        return self.state is State.READY and self.attempts.crash_suspected

    @property
    def fault(self) -> str:
        """Why the body cannot be read, or nothing."""
        return self._read if isinstance(self._read, str) else ""

    @property
    def is_cut(self) -> bool:
        """Whether the body is longer than was looked at."""
        return self.stored is not None and len(self.stored) < self.size

    @property
    def due_us(self) -> int | None:
        """When the job is or was due (µs since the epoch, to the millisecond); None for a dead letter."""
        match self.state:
            case State.SCHEDULED:
                return whole(self.score)
            case State.READY:
                return self._due_of(whole(self.score))
            case State.CLAIMED:
                return self._due_of(self.running.rank) if self.running.rank else None
            case _:
                return None

    @cached_property
    def _read(self) -> Job | str:
        if self.is_cut:
            return f"too long to be shown here ({self.size:,} bytes)"
        try:
            return decode(self.stored, raw_id=self.raw_id, shard=self.shard)
        except BadBody as error:
            return str(error)

    def _due_of(self, rank: int) -> int:
        return due_of_rank(rank, self.member[13] if len(self.member) > 13 else 0, due_first_us=self.due_first_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPage:
    """Rows of one place, or of several merged, lowest score first."""

    #: Rows in front of the first one that was looked at, and rows there are: within the scores asked for.
    rank: int
    total: int
    rows: list[JobRow]
    #: Rows that were looked at: more than `rows` where not all matched.
    scanned: int
    #: Cursor to go on from in the same direction; None: nothing is left there.
    end: tuple[float, bytes] | None


def parse_page(
    reply: Sequence[Any],
    *,
    shard: int,
    state: State,
    due_first_us: int,
    found_in: Sequence[str],
    before: bool,
    count: int,
    match: Callable[[JobRow], bool] | None,
) -> JobPage:
    """Make a page of what `page.lua` found: as many rows as were asked for, of those that match.

    `found_in` names the queue of each place that was looked at.
    """
    rank, total, more = reply[:3]
    found = [
        _row(reply[at : at + _CELLS], shard=shard, state=state, due_first_us=due_first_us, found_in=found_in)
        for at in range(3, len(reply), _CELLS)
    ]
    looked = list(_looked(reversed(found) if before else found, count, match))
    rows = [row for row, fits in looked if fits]
    left = bool(more) or len(looked) < len(found)
    if before:
        rows.reverse()
        rank += len(found) - len(looked)
    end = looked[-1][0].cursor if looked and left else None
    return JobPage(rank=rank, total=total, rows=rows, scanned=len(looked), end=end)


def _looked(found: Any, count: int, match: Callable[[JobRow], bool] | None) -> Iterator[tuple[JobRow, bool]]:
    """Yield the rows looked at and whether each matches, until enough do or time is up."""
    if match is None:
        yield from ((row, True) for row in islice(found, count))
        return
    until, left = monotonic() + _LOOKING, count
    for row in found:
        fits = match(row)
        yield row, fits
        left -= fits
        if not left or monotonic() > until:
            return


def _row(cells: Sequence[Any], *, shard: int, state: State, due_first_us: int, found_in: Sequence[str]) -> JobRow:
    member, place, score, stored, size, record, running, worker = cells
    if state is State.DEAD:
        record, _, body = DeadLetterRecord.unpack(stored)
        size, stored = size - (len(stored or b"") - len(body)), body
    return JobRow(
        member=member,
        shard=shard,
        state=state,
        score=_exact(score),
        stored=stored,
        size=size,
        attempts=AttemptHistory.unpack(record),
        running=RunningRecord.unpack(running),
        worker=worker.decode(errors="replace") if worker else "",
        due_first_us=due_first_us,
        found_in=found_in[place - 1],
    )


def whole(score: Any) -> int:
    """Return a score as a whole number; one beyond all of ours, written by hand, as the nearest that is not."""
    return int(min(max(float(score), -_END), _END))


def _exact(score: Any) -> float:
    # A page that ends between two rows goes on at the same score: two that differ must not be told as one.
    value = float(score)
    return int(value) if abs(value) <= _END and value.is_integer() else value
