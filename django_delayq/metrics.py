"""Tally: what happened to jobs, added up by the minute; by a process, until it is told to Redis, and read from there.

A scope (all jobs, one queue, one task) has a ring of the last hour's minutes in Redis, each a row of whole numbers: so
what is kept is bounded by the number of names alone, and `lua/report.lua` adds rows without knowing what they count.
"""

import struct
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

#: Upper edges of the buckets of a histogram in µs, doubling; the last bucket is open.
EDGES_US = tuple(250 << step for step in range(21))
BUCKETS = len(EDGES_US) + 1
_NARROWEST = EDGES_US[0]
#: Minutes in a ring: the one under way, and a whole hour.
MINUTES = 61
MINUTE_US = 60_000_000
#: What a row counts before its two histograms.
_NAMES = ("done", "retried", "dead", "expired", "moved")
#: Numbers in a row.
WIDTH = len(_NAMES) + 2 * BUCKETS
_ROW = struct.Struct(f">{WIDTH}I")
#: The row in a ring: in front of it stands the minute it is of.
_SLOT = struct.Struct(f">{1 + WIDTH}I")
_COLUMNS = {name: number for number, name in enumerate(_NAMES)}
_MOVED = _COLUMNS["moved"]
_LAG, _RUN = len(_NAMES), len(_NAMES) + BUCKETS
_MOST = 2**32 - 1

#: The scope of all jobs.
ALL_JOBS = b"all"


def bucket(us: int) -> int:
    """Return the number of the bucket that a time belongs to; what was before its time counts as 0."""
    number = (us // _NARROWEST).bit_length() if us > 0 else 0
    return number if number < BUCKETS else BUCKETS - 1


def queue_dimension(queue: str) -> bytes:
    """Return the scope of a queue's jobs."""
    return b"queue:" + queue.encode("utf-8", "surrogatepass")


def task_dimension(task: str) -> bytes:
    """Return the scope of a task's jobs."""
    return b"task:" + task.encode("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """What happened within a minute, or within several added up."""

    done: int = 0
    #: Attempts that failed, crashed or lapsed and were followed by another.
    retried: int = 0
    #: Jobs that became dead letters.
    dead: int = 0
    expired: int = 0
    #: Jobs promoted.
    moved: int = 0
    #: Runs by how long after its due time each began: counts per bucket of EDGES_US.
    lag: tuple[int, ...] = (0,) * BUCKETS
    #: Runs by how long their code took.
    run: tuple[int, ...] = (0,) * BUCKETS

    @property
    def failed(self) -> int:
        """Attempts that did not succeed."""
        return self.retried + self.dead

    @property
    def finished(self) -> int:
        """Attempts that ended."""
        return self.done + self.failed

    @property
    def success_share(self) -> float | None:
        """The share of attempts that succeeded, or None where none ended."""
        return self.done / self.finished if self.finished else None

    def lag_us(self, share: float) -> int | None:
        """Return the time within which so large a share of runs began after they were due, or None without runs."""
        return _percentile(self.lag, share)

    def run_us(self, share: float) -> int | None:
        """Return the time within which so large a share of runs ended, or None without runs."""
        return _percentile(self.run, share)

    @classmethod
    def of(cls, row: Iterable[int]) -> "Stats":
        """Read a row."""
        numbers = tuple(row)
        named = dict(zip(_NAMES, numbers, strict=False))
        return cls(**named, lag=numbers[_LAG:_RUN], run=numbers[_RUN:])


EMPTY = Stats()


@dataclass(frozen=True)
class MinuteSeries:
    """The last hour of one scope, by the minute."""

    #: Minute since the epoch -> its row.
    rows: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def unpack(cls, ring: bytes | None) -> "MinuteSeries":
        """Read a ring; one that is not ours reads as empty."""
        if not ring or len(ring) != MINUTES * _SLOT.size:
            return NO_HISTORY
        return cls({minute: tuple(row) for minute, *row in _SLOT.iter_unpack(ring) if minute})

    @classmethod
    def added(cls, histories: "Sequence[MinuteSeries]") -> "MinuteSeries":
        """Return the history of several scopes together."""
        if len(histories) == 1:
            return histories[0]
        rows: dict[int, list[int]] = {}
        for history in histories:
            for minute, row in history.rows.items():
                _add(rows.setdefault(minute, [0] * WIDTH), row)
        return cls({minute: tuple(row) for minute, row in rows.items()})

    def last(self, now_us: int, minutes: int = 60) -> Stats:
        """Return the last minutes added up, up to the one under way."""
        return Stats.of(self._added(now_us, minutes))

    def series(self, now_us: int, minutes: int = 60) -> list[Stats]:
        """Return the last minutes one by one, oldest first, the one under way last."""
        last = now_us // MINUTE_US
        found = (self.rows.get(minute) for minute in range(last - minutes + 1, last + 1))
        return [Stats.of(row) if row else EMPTY for row in found]

    def _added(self, now_us: int, minutes: int) -> list[int]:
        last = now_us // MINUTE_US
        rows = [row for minute, row in self.rows.items() if last - minutes < minute <= last]
        return [sum(column) for column in zip(*rows, strict=True)] if rows else [0] * WIDTH


NO_HISTORY = MinuteSeries()


class MetricsBuffer:
    """One process's adding up; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: (queue, task) -> row; "" for what has none.
        self._rows: dict[tuple[str, str], list[int]] = {}

    def ended(self, name: str, *, queue: str, task: str, lag_us: int | None = None, run_us: int | None = None) -> None:
        """Add an attempt that ended as `done`, `retried` or `dead`; without times where nobody saw it run."""
        with self._lock:
            row = self._row(queue, task)
            row[_COLUMNS[name]] += 1
            if lag_us is not None:
                row[_LAG + bucket(lag_us)] += 1
            if run_us is not None:
                row[_RUN + bucket(run_us)] += 1

    def moved(self, number: int) -> None:
        """Add jobs that were promoted."""
        with self._lock:
            self._row("", "")[_MOVED] += number

    def take(self) -> dict[tuple[str, str], list[int]]:
        """Return the rows of what was added since the last take, by queue and task, and begin anew."""
        with self._lock:
            rows, self._rows = self._rows, {}
        return rows

    def restore(self, rows: Mapping[tuple[str, str], Sequence[int]]) -> None:
        """Add what was taken again: it could not be told."""
        with self._lock:
            for (queue, task), taken in rows.items():
                _add(self._row(queue, task), taken)

    def _row(self, queue: str, task: str) -> list[int]:
        row = self._rows.get((queue, task))
        if row is None:
            row = self._rows[queue, task] = [0] * WIDTH
        return row


class PromotionStats:
    """What one dispatcher promoted within the last hour, and how late."""

    def __init__(self) -> None:
        self._rows: dict[int, list[int]] = {}

    def promoted(self, number: int, *, late_us: int, now_us: int) -> None:
        """Add one step: so many jobs, of which the oldest was so late."""
        row = self._rows.setdefault(now_us // MINUTE_US, [0] * WIDTH)
        row[_MOVED] += number
        row[_LAG + bucket(late_us)] += 1
        for minute in [minute for minute in self._rows if minute <= now_us // MINUTE_US - MINUTES]:
            del self._rows[minute]

    def figures(self, now_us: int) -> Stats:
        """Return the hour added up; its lag counts steps, not jobs."""
        return MinuteSeries({minute: tuple(row) for minute, row in self._rows.copy().items()}).last(now_us)


def encode_rows(rows: Mapping[tuple[str, str], Sequence[int]]) -> dict[bytes, bytes]:
    """Return scope -> row as `lua/report.lua` adds it: each row counts for all jobs, its queue and its task."""
    scopes: dict[bytes, list[int]] = {}
    for (queue, task), row in rows.items():
        for scope in [
            ALL_JOBS,
            *([queue_dimension(queue)] if queue else []),
            *([task_dimension(task)] if task else []),
        ]:
            _add(scopes.setdefault(scope, [0] * WIDTH), row)
    return {scope: _ROW.pack(*(min(number, _MOST) for number in row)) for scope, row in scopes.items()}


def _add(row: list[int], more: Sequence[int]) -> None:
    row[:] = [a + b for a, b in zip(row, more, strict=True)]


def _percentile(counts: Sequence[int], share: float) -> int | None:
    """Interpolate within the bucket that the share falls into; in the open one its lower edge is all that is known."""
    wanted = share * sum(counts)
    for number, count in enumerate(counts):
        if count and wanted <= count:
            lower = EDGES_US[number - 1] if number else 0
            upper = EDGES_US[number] if number < len(EDGES_US) else lower
            return round(lower + (upper - lower) * wanted / count)
        wanted -= count
    return None
