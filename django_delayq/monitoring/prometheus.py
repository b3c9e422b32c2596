"""Prometheus: the figures as metric families of `prometheus-client`, the extra `prometheus`.

Every name is in this file. A counter's name ends with `_total` in the text.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from django_delayq.clock import SECOND_US
from django_delayq.metrics import ALL_JOBS, BUCKETS, EDGES_US, Stats, name_in
from django_delayq.monitoring.figures import Figures, label
from django_delayq.store.queries.snapshot import QueueState

T = TypeVar("T")
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: Outcome -> the figure that counts it. A series of the last four begins with its first job: they are rare, and two
#: thirds of the text with them.
_OUTCOMES: dict[str, Callable[[Stats], int]] = {
    "done": lambda stats: stats.done,
    "retried": lambda stats: stats.retried,
    "failed": lambda stats: stats.dead,
    "reclaimed": lambda stats: stats.reclaimed,
    "snoozed": lambda stats: stats.snoozed,
    "cancelled": lambda stats: stats.cancelled,
    "expired": lambda stats: stats.expired,
    "dropped": lambda stats: stats.dropped,
}
#: Most queues that have gauges of their own. There are about six of each.
MOST_QUEUES = 1_000
_ALWAYS = frozenset(("done", "retried", "failed", "reclaimed"))
#: The buckets that are exported: 1 ms, 8 ms, 64 ms, 0.5 s, 4 s, 33 s, 262 s. All 22 would triple the text.
_EXPORTED = range(2, BUCKETS - 1, 3)


def text(figures: Figures) -> bytes:
    """Return the text that Prometheus scrapes."""
    registry = CollectorRegistry()
    registry.register(_Collector(figures))
    return generate_latest(registry)


class _Collector:
    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        """Yield the families of one scrape."""
        yield from self._counters()
        yield from self._gauges()

    def describe(self) -> Sequence[Metric]:
        """Return nothing: otherwise a registry collects once to learn the names."""
        return ()

    def _counters(self) -> Iterator[Metric]:
        totals = self._figures.totals
        # Without some of the servers the sums would go back, which reads as a restart.
        if self._figures.reads.missing:
            return
        promoted = totals.stats.get(ALL_JOBS, Stats()).promoted
        yield _single(CounterMetricFamily, "delayq_jobs_promoted", "Jobs that dispatchers made ready.", promoted)
        for kind in ("queue", "task"):
            yield from self._of_kind(kind)
        # It depends on the queue: one more histogram of each task would be a third of the text.
        delay = HistogramMetricFamily(
            "delayq_queue_start_delay_seconds", "From the due time of a job to its start.", labels=("queue",)
        )
        for name, stats in _by_name("queue", self._figures.totals.stats).items():
            delay.add_metric((name,), _buckets(stats.lag), stats.lag_sum_us / SECOND_US)
        yield delay

    def _of_kind(self, kind: str) -> Iterator[Metric]:
        """Yield what is counted of each queue, or of each task."""
        totals = self._figures.totals
        enqueued = CounterMetricFamily(
            f"delayq_{kind}_enqueued",
            f"Jobs that were stored. Without a name: those of further {kind}s than are told apart.",
            labels=(kind,),
        )
        for name, count in _by_name(kind, totals.enqueued).items():
            enqueued.add_metric((name,), count)
        outcomes = CounterMetricFamily(
            f"delayq_{kind}_outcomes",
            "How attempts ended, how jobs ended without one, and leases that ran out (reclaimed).",
            labels=(kind, "outcome"),
        )
        run = HistogramMetricFamily(
            f"delayq_{kind}_run_seconds",
            "How long attempts ran; its count is that of started attempts that have ended.",
            labels=(kind,),
        )
        for name, stats in _by_name(kind, totals.stats).items():
            for outcome, figure in _OUTCOMES.items():
                count = figure(stats)
                if count or outcome in _ALWAYS:
                    outcomes.add_metric((name, outcome), count)
            run.add_metric((name,), _buckets(stats.run), stats.run_sum_us / SECOND_US)
        yield from (enqueued, outcomes, run)

    def _of_queues(self) -> Iterator[Metric]:
        """Yield what the queues have now: the largest by their names, further ones together without a name."""
        snapshot, needed = self._figures.snapshot, self._figures.queue_slots_needed
        largest = sorted(snapshot.queues, key=lambda name: _size(snapshot.queues[name]), reverse=True)[:MOST_QUEUES]
        labels = {name: label(name) for name in largest}
        states: Counter[tuple[str, str]] = Counter()
        slots: Counter[str] = Counter()
        oldest: dict[str, float] = {}
        paused: dict[str, int] = {}
        for name, state in snapshot.queues.items():
            queue = labels.get(name, "")
            states[queue, "scheduled"] += state.scheduled - state.overdue
            states[queue, "overdue"] += state.overdue
            states[queue, "ready"] += state.ready - state.parked
            states[queue, "parked"] += state.parked
            slots[queue] += needed.get(name, 0)
            since_us = snapshot.now_us - (state.oldest_ready_us or snapshot.now_us)
            oldest[queue] = max(oldest.get(queue, 0), since_us / SECOND_US)
            paused[queue] = paused.get(queue, 0) + (state.paused is not None)
        jobs = GaugeMetricFamily("delayq_jobs", "Jobs of a queue by state.", labels=("queue", "state"))
        for pair, number in states.items():
            jobs.add_metric(pair, number)
        yield jobs
        for name, help_text, values in (
            ("oldest_ready_seconds", "For how long the next ready job has been due.", oldest),
            ("queue_paused", "1 if the queue is paused.", paused),
            ("queue_slots_needed", "Slots that start each job of the next 15 minutes within a minute.", slots),
        ):
            family = GaugeMetricFamily(f"delayq_{name}", help_text, labels=("queue",))
            for queue, value in values.items():
                family.add_metric((queue,), value)
            yield family

    def _gauges(self) -> Iterator[Metric]:
        figures, snapshot = self._figures, self._figures.snapshot
        yield from self._of_queues()
        due = GaugeMetricFamily(
            "delayq_jobs_due", "Scheduled jobs that come due within so many seconds.", labels=("within",)
        )
        for seconds, number in figures.due_within.items():
            due.add_metric((str(seconds),), number)
        yield due
        next_us, alive = snapshot.total.next_due_us, figures.alive
        for name, help_text, value in (
            ("delayq_jobs_running", "Jobs that workers have claimed.", snapshot.claimed),
            ("delayq_jobs_failed", "Failed jobs that wait for a person.", snapshot.dead),
            (
                "delayq_next_due_timestamp_seconds",
                "When the next scheduled job is due; 0 if none is.",
                (next_us or 0) / SECOND_US,
            ),
            ("delayq_slots", "Jobs that the workers run at once.", figures.forecast.slots),
            (
                "delayq_workers_needed",
                "Workers that start every job of the next 15 minutes within a minute of its time.",
                figures.workers_needed,
            ),
            (
                "delayq_servers_missing",
                "Redis servers that do not answer; the other figures leave out what they have.",
                len(figures.reads.missing),
            ),
        ):
            yield _single(GaugeMetricFamily, name, help_text, value)
        off = GaugeMetricFamily(
            "delayq_forecast_off_seconds",
            "How far the forecast of start delays was off within the last hour; absent if no job has finished.",
        )
        if figures.forecast_off_seconds is not None:
            off.add_metric((), figures.forecast_off_seconds)
        yield off
        processes = GaugeMetricFamily("delayq_processes", "Live processes by kind.", labels=("kind",))
        for kind in ("dispatcher", "worker"):
            processes.add_metric((kind,), len({each.name or each.code for each in alive if each.kind == kind}))
        yield processes


def _single(family: Callable[..., Any], name: str, help_text: str, value: float) -> Metric:
    found: Metric = family(name, help_text, value=value)
    return found


def _by_name(kind: str, by_dimension: Mapping[bytes, T]) -> dict[str, T]:
    """Return what belongs to queues, or to tasks, by the label of their names."""
    prefix = f"{kind}:".encode()
    return {
        label(name_in(dimension)): found
        for dimension, found in sorted(by_dimension.items())
        if dimension.startswith(prefix)
    }


def _size(state: QueueState) -> int:
    return state.ready + state.scheduled


def _buckets(counts: Sequence[int]) -> list[tuple[str, float]]:
    """Return the cumulated counts by upper edges in seconds."""
    sums = list(accumulate(counts))
    edges = [(str(EDGES_US[number] / SECOND_US), float(sums[number])) for number in _EXPORTED]
    return [*edges, ("+Inf", float(sums[-1]))]
