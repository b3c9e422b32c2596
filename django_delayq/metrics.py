"""Metrics: what became of attempts, counted by the minute and by the hour for all jobs, each queue and each task.

A process counts in a `MetricsBuffer`. `lua/report.lua` adds its rows to the series in Redis; pages read a
`MinuteSeries` or an `HourSeries`. A dimension is what a series belongs to: all jobs, one queue or one task.
"""

import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import add

#: Upper edges of a histogram's buckets in µs, doubling; the last bucket is open.
EDGES_US = tuple(250 << step for step in range(21))
_FIRST_EDGE_US = EDGES_US[0]
#: The middle of each bucket; of the open one, half of its lower edge above that.
_MIDDLES_US = (*(3 * edge // 4 for edge in EDGES_US), 3 * EDGES_US[-1] // 2)
BUCKETS = len(EDGES_US) + 1
MINUTE_US, HOUR_US = 60_000_000, 3_600_000_000
#: Minutes and hours that are kept.
MINUTES, HOURS = 60, 168

#: A count per figure. As text, names of figures and counts alternate, separated by spaces and without zeros. Rows, and
#: series of rows, are added by joining their texts.
Row = list[int]
#: (queue, task) -> row; "" = unknown.
Rows = dict[tuple[str, str], Row]
_COUNTS = ("done", "retried", "dead", "promoted", "snoozed", "cancelled", "expired", "dropped", "reclaimed")
#: Sums of the delays and of the durations in µs, beside their histograms.
_SUMS = ("lagsum", "runsum")
_FIGURES = (*_COUNTS, *_SUMS, *(f"{kind}{number}" for kind in ("lag", "run") for number in range(BUCKETS)))
_INDEX = {figure: index for index, figure in enumerate(_FIGURES)}
_LAG_SUM, _RUN_SUM, _LAG, _RUN = (_INDEX[figure] for figure in ("lagsum", "runsum", "lag0", "run0"))
#: A line of a series: a minute, or an hour, since the epoch and its row. Any other line was edited manually.
_LINE = re.compile(r"^(\d{1,15})((?: \w+ \d{1,19})+)$", re.ASCII | re.MULTILINE)
#: The sum of the durations within a row, or one of their buckets.
_RUNS = re.compile(rb" run(sum|\d\d?) (\d{1,19})", re.ASCII)
#: No line is longer.
_LONGEST = 32 * len(_FIGURES)

#: The dimension of all jobs.
ALL_JOBS = b"all"


def bucket(us: int) -> int:
    """Return the number of the bucket of a duration in µs; a negative one counts as 0."""
    number = (us // _FIRST_EDGE_US).bit_length() if us > 0 else 0
    return number if number < BUCKETS else BUCKETS - 1


def queue_dimension(queue: str) -> bytes:
    """Return the dimension of a queue's jobs."""
    return b"queue:" + queue.encode("utf-8", "surrogatepass")


def name_in(dimension: bytes) -> str:
    """Return the name of the queue or task that a dimension is of."""
    name = dimension.partition(b":")[2]
    try:
        return name.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        # It was edited manually.
        return name.decode("utf-8", "surrogateescape")


def task_dimension(task: str) -> bytes:
    """Return the dimension of a task's jobs."""
    return b"task:" + task.encode("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Totals of one minute or of several."""

    done: int = 0
    #: Attempts that failed, crashed or lost their lease, and were followed by another.
    retried: int = 0
    #: Jobs that became dead letters.
    dead: int = 0
    #: Jobs that one dispatcher promoted.
    promoted: int = 0
    #: Runs that ended with a snooze. They are no attempts.
    snoozed: int = 0
    #: Jobs that were stopped while they ran.
    cancelled: int = 0
    #: Jobs that expired before they could begin.
    expired: int = 0
    #: Jobs that a limit kept from beginning, and that do not wait for it.
    dropped: int = 0
    #: Leases that ran out, because their worker was lost or stuck; the attempt counts as retried or dead, too.
    reclaimed: int = 0
    #: The sums of what the two histograms have, in µs.
    lag_sum_us: int = 0
    run_sum_us: int = 0
    #: Runs by their delay from due time to start: a count per bucket.
    lag: tuple[int, ...] = (0,) * BUCKETS
    #: Runs by their duration: a count per bucket.
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
        """The share of attempts that succeeded; None if none ended."""
        return self.done / self.finished if self.finished else None

    def lag_us(self, share: float) -> int | None:
        """Return the delay in µs that this share of runs did not exceed; None without runs."""
        return _percentile(self.lag, share)

    def run_us(self, share: float) -> int | None:
        """Return the duration in µs that this share of runs did not exceed; None without runs."""
        return _percentile(self.run, share)

    @classmethod
    def of(cls, row: Row) -> "Stats":
        """Return the totals of a row."""
        counts = dict(zip(_COUNTS, row, strict=False))
        sums = {"lag_sum_us": row[_LAG_SUM], "run_sum_us": row[_RUN_SUM]}
        return cls(**counts, **sums, lag=tuple(row[_LAG:_RUN]), run=tuple(row[_RUN:]))

    @classmethod
    def of_lines(cls, text: bytes) -> "Stats":
        """Return the totals of all lines."""
        row = _zeros()
        for _, line in _LINE.findall(text.decode("ascii", "replace")):
            _add_text(row, line)
        return cls.of(row)


class _Rows:
    """Rows of one dimension, by minutes or hours since the epoch."""

    def __init__(self, text: bytes = b"") -> None:
        """Read a series as text, of one or several shards."""
        #: Minute or hour since the epoch -> its row.
        self._rows: dict[int, Row] = {}
        for step, row in _LINE.findall(text.decode("ascii", "replace")):
            _add_text(self._rows.setdefault(int(step), _zeros()), row)

    def _last(self, step: int, number: int) -> list[Row]:
        rows = self._rows
        return [rows.get(each) or _zeros() for each in range(step - number + 1, step + 1)]


class MinuteSeries(_Rows):
    """The last hour of one dimension, by the minute."""

    def record_promotion(self, number: int, *, late_us: int, now_us: int) -> None:
        """Count promoted jobs, and as lag how late the oldest of them was."""
        minute = now_us // MINUTE_US
        if minute not in self._rows:
            # A new dict: another thread may read the old one.
            self._rows = {old: row for old, row in self._rows.items() if old > minute - MINUTES} | {minute: _zeros()}
        row = self._rows[minute]
        row[_INDEX["promoted"]] += number
        row[_LAG + bucket(late_us)] += 1

    def hour(self, now_us: int) -> Stats:
        """Return the total of the last 60 minutes, the current one included."""
        return _total(self._last(now_us // MINUTE_US, MINUTES))

    def minutes(self, now_us: int) -> list[Stats]:
        """Return the last 60 minutes, oldest first; the last is the current one."""
        return [Stats.of(row) for row in self._last(now_us // MINUTE_US, MINUTES)]


class HourSeries(_Rows):
    """The last week of one dimension, by the hour."""

    def week(self, now_us: int) -> Stats:
        """Return the total of the last 168 hours, the current one included."""
        return _total(self._last(now_us // HOUR_US, HOURS))

    def hours(self, now_us: int) -> list[Stats]:
        """Return the last 168 hours, oldest first; the last is the current one."""
        return [Stats.of(row) for row in self._last(now_us // HOUR_US, HOURS)]


def mean_run_us(series: bytes, *, now_us: int) -> float | None:
    """Return the mean duration of the last hour's runs in µs; None without runs.

    In a row of a release without sums each run is as long as the middle of its bucket.
    """
    newest, runs, total_us = now_us // MINUTE_US, 0, 0.0
    for line in series.split(b"\n"):
        minute, _, row = line.partition(b" ")
        if minute.isdigit() and newest - MINUTES < int(minute) <= newest:
            more, us = _runs_in(row)
            runs, total_us = runs + more, total_us + us
    return total_us / runs if runs else None


# A scrape reads 60 rows of each queue, and all but the newest are those of the scrape before. This is enough for 136
# queues; with more, each scrape reads all rows anew.
@lru_cache(maxsize=8_192)
def _runs_in(row: bytes) -> tuple[int, float]:
    """Return how many runs a row has, and their durations together in µs."""
    found = dict(_RUNS.findall(b" " + row))
    sum_us = found.pop(b"sum", None)
    counts = {int(bucket): int(count) for bucket, count in found.items()}
    # Two digits that are no bucket were edited manually.
    middles = sum(_MIDDLES_US[bucket] * count for bucket, count in counts.items() if bucket < BUCKETS)
    return sum(counts.values()), middles if sum_us is None else int(sum_us)


def hours_text(rows: Sequence[bytes | None], minutes: bytes, *, now_us: int) -> bytes:
    """Return the last hours of a shard, oldest first, as the text of an `HourSeries`.

    `minutes` is the series of the same dimension by the minute: no hour has its newest minute yet.
    """
    first = now_us // HOUR_US - len(rows) + 1
    lines = [b"%d %s\n" % (first + at, row) for at, row in enumerate(rows) if row and b"\n" not in row]
    newest = _LINE.match(minutes[:_LONGEST].decode("ascii", "replace"))
    return b"".join(lines) + (f"{int(newest[1]) // 60}{newest[2]}\n".encode() if newest else b"")


class MetricsBuffer:
    """Counts of one process since its last report. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: Rows = {}

    def count_attempt(
        self,
        outcome: str,
        *,
        queue: str,
        task: str,
        lag_us: int | None = None,
        run_us: int | None = None,
        reclaimed: bool = False,
    ) -> None:
        """Count a run that was `done`, `retried`, `dead` or `snoozed`, or a job that `expired`, which has no times.

        `reclaimed`: its lease ran out.
        """
        with self._lock:
            row = self._rows.get((queue, task))
            if row is None:
                row = self._rows[queue, task] = _zeros()
            row[_INDEX[outcome]] += 1
            if reclaimed:
                row[_INDEX["reclaimed"]] += 1
            if lag_us is not None:
                row[_LAG + bucket(lag_us)] += 1
                if lag_us > 0:
                    row[_LAG_SUM] += lag_us
            if run_us is not None:
                row[_RUN + bucket(run_us)] += 1
                row[_RUN_SUM] += run_us

    def take(self) -> Rows:
        """Return the rows since the last call, and start from zero."""
        with self._lock:
            rows, self._rows = self._rows, {}
        return rows

    def restore(self, rows: Rows) -> None:
        """Add rows that were taken but could not be sent."""
        with self._lock:
            for key, row in rows.items():
                _add(self._rows.setdefault(key, _zeros()), row)


def encode_rows(rows: Rows) -> dict[bytes, bytes]:
    """Return dimension -> row as text; each row counts for all jobs, its queue and its task."""
    totals: dict[bytes, Row] = {}
    for (queue, task), row in rows.items():
        _add(totals.setdefault(ALL_JOBS, _zeros()), row)
        if queue:
            _add(totals.setdefault(queue_dimension(queue), _zeros()), row)
        if task:
            _add(totals.setdefault(task_dimension(task), _zeros()), row)
    return {
        dimension: " ".join(f"{figure} {count}" for figure, count in zip(_FIGURES, row, strict=True) if count).encode()
        for dimension, row in totals.items()
    }


def _total(rows: Sequence[Row]) -> Stats:
    return Stats.of(list(map(sum, zip(*rows, strict=True))))


def _zeros() -> Row:
    return [0] * len(_FIGURES)


def _add(row: Row, more: Row) -> None:
    row[:] = map(add, row, more)


def _add_text(row: Row, text: str) -> None:
    cells = text.split()
    for figure, count in zip(cells[::2], map(int, cells[1::2]), strict=True):
        if figure in _INDEX:
            row[_INDEX[figure]] += count


def _percentile(counts: Sequence[int], share: float) -> int | None:
    """Interpolate within the bucket that the share falls into; the open bucket counts as its lower edge."""
    wanted = share * sum(counts)
    for number, count in enumerate(counts):
        if count and wanted <= count:
            lower = EDGES_US[number - 1] if number else 0
            upper = EDGES_US[number] if number < len(EDGES_US) else lower
            return round(lower + (upper - lower) * wanted / count)
        wanted -= count
    return None
