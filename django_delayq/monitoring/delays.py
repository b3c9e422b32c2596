"""How late the jobs of the next day will start: what is due, by the minute where it matters, and its forecast."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from django_delayq.clock import DAY_US, HOUR_US, SECOND_US
from django_delayq.job.ending import Ending
from django_delayq.load_forecast import QueueLoad, StepForecast, WorkerSlots, forecast, slots_needed
from django_delayq.metrics import ALL_JOBS, MINUTE_US, mean_run_us, queue_dimension
from django_delayq.monitoring.due import due_in_all_shards, summed
from django_delayq.monitoring.store_view import StoreView
from django_delayq.store.client.reading import Reading, together

QUARTER_US = 15 * MINUTE_US
#: A job that starts later than this is late.
LATE_US = MINUTE_US
#: How far ahead what comes due is counted, in seconds.
AHEAD = (300, 3_600, 86_400)
#: How many minutes ahead the jobs of each minute are counted.
NEXT_MINUTES = 15
#: Quarters whose minutes are counted: those with the most work, if it may take longer than a minute.
_MOST_QUARTERS = 32
#: The run time of a job of which nothing is known.
_UNKNOWN_RUN_US = SECOND_US


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarter:
    """A quarter of an hour, and the jobs that are due within it."""

    start_us: int
    end_us: int
    due: int
    #: The longest delay of their starts, and when the last one starts; None: not within the forecast, or never.
    delay_us: int | None
    started_by_us: int | None
    #: Slots that would keep the delay within a minute; 0 if it is.
    slots_needed: int = 0

    @property
    def is_late(self) -> bool:
        """Whether some of its jobs start late."""
        return self.due > 0 and _is_late(self.delay_us)


@dataclass(frozen=True, kw_only=True)
class DelayForecast:
    """The forecast of a day from now on."""

    start_us: int
    loads: Mapping[str, QueueLoad]
    workers: Sequence[WorkerSlots]
    #: Queues of which no run is known, so that a second is assumed.
    guessed: Sequence[str]
    #: Seconds ahead -> jobs that come due until then.
    due_within: Mapping[int, int]

    @property
    def slots(self) -> int:
        """The slots of all workers."""
        return sum(worker.slots for worker in self.workers)

    @cached_property
    def steps(self) -> Sequence[StepForecast]:
        """The forecast of each minute."""
        found = forecast(self.loads, self.workers, step_us=MINUTE_US)
        # Without a queue there is no load that has steps.
        return found or [StepForecast(due=0, delay_us=0)] * (DAY_US // MINUTE_US)

    @cached_property
    def quarters(self) -> Sequence[Quarter]:
        """The quarters of the day, by the clock: the first is what is left of the current one."""
        return [self._quarter(first, last) for first, last in _ranges(self.start_us, len(self.steps))]

    def _quarter(self, first: int, last: int) -> Quarter:
        busy = [(at, step.delay_us) for at, step in enumerate(self.steps[first:last], first) if step.due]
        delays = [delay_us for _at, delay_us in busy]
        is_open = None in delays
        found = Quarter(
            start_us=self.start_us + first * MINUTE_US,
            end_us=self.start_us + last * MINUTE_US,
            due=round(sum(step.due for step in self.steps[first:last])),
            delay_us=None if is_open else max((each for each in delays if each), default=0),
            started_by_us=None
            if is_open
            else max((self.start_us + (at + 1) * MINUTE_US + (each or 0) for at, each in busy), default=None),
        )
        if not found.is_late:
            return found
        of_quarter = [QueueLoad(ready=0, due=load.due[first:last], run_us=load.run_us) for load in self.loads.values()]
        needed = slots_needed(of_quarter, step_us=MINUTE_US, within_us=LATE_US)
        return replace(found, slots_needed=needed)


def read(view: StoreView) -> DelayForecast:
    """Read what is due; two round trips besides the snapshot's, of which the second counts minutes where it matters."""
    start_us, queues = view.now_us // MINUTE_US * MINUTE_US, list(view.snapshot.queues)
    minutes = DAY_US // MINUTE_US
    # The next ones by the minute: by them it is decided how many workers are needed.
    ranges = [(minute, minute + 1) for minute in range(NEXT_MINUTES)]
    ranges += [(max(first, NEXT_MINUTES), last) for first, last in _ranges(start_us, minutes) if last > NEXT_MINUTES]
    # Jobs that were due within the current minute wait already.
    edges = [max(view.now_us, start_us + first * MINUTE_US) for first, _last in ranges] + [start_us + DAY_US]
    ahead = [view.now_us, *(view.now_us + seconds * SECOND_US for seconds in AHEAD)]
    due, soon = due_in_all_shards(view, (edges, ahead), queues)
    workers = _workers(view, queues)
    run_us, guessed = _run_times(view, queues)
    heavy = _heavy(due, run_us, workers)
    details = _minutes(view, start_us, [(ranges[quarter], names) for quarter, names in heavy.items()])
    loads, idle = {}, [0.0] * minutes
    for name in queues:
        # Most of many queues have nothing ahead.
        by_minute = idle[:] if name in due else idle
        for at, (first, last) in enumerate(ranges if name in due else ()):
            even = [due[name][at] / (last - first)] * (last - first)
            by_minute[first:last] = details.get((first, name), even)
        loads[name] = _load(view, name, by_minute, run_us[name])
    return DelayForecast(
        start_us=start_us,
        loads=loads,
        workers=workers,
        guessed=guessed,
        due_within={
            seconds: sum(sum(counts[: number + 1]) for counts in soon.values()) for number, seconds in enumerate(AHEAD)
        },
    )


def first_late_us(view: StoreView, edges: Sequence[int], due: Mapping[str, Sequence[int]]) -> int | None:
    """Return since when jobs start late if those between two edges are due evenly; None if none does.

    No round trip. Many jobs that are due at one moment may be late all the same: `read()` counts by the minute.
    """
    steps, workers = list(pairwise(edges)), _workers(view, list(due))
    # Alerts of their own name queues that nobody serves.
    names = [name for name in due if any(name in worker.queues for worker in workers)]
    run_us, _guessed = _run_times(view, names)
    loads = {name: _load(view, name, due[name], run_us[name]) for name in names}
    # The first bar and the last one may be shorter than the others.
    longest_us = max(end - start for start, end in steps)
    found = forecast(loads, workers, step_us=longest_us)
    late = (start for (start, _), each in zip(steps, found, strict=False) if each.due and _is_late(each.delay_us))
    return next(late, None)


def _is_late(delay_us: int | None) -> bool:
    return delay_us is None or delay_us > LATE_US


def _workers(view: StoreView, queues: Sequence[str]) -> list[WorkerSlots]:
    """Return the slots of the workers, and which of the queues they take jobs from: none from a paused one."""
    states = view.snapshot.queues
    active = [name for name in queues if name not in states or not states[name].paused]
    return [
        WorkerSlots(slots=each.slots, queues=frozenset(name for name in active if each.serves(name)))
        for each in view.workers
    ]


def _load(view: StoreView, name: str, due: Sequence[float], run_us: float) -> QueueLoad:
    """Return the load of a queue, with the jobs that wait already."""
    state = view.snapshot.queues[name]
    # A parked job waits for a limit, not for a slot.
    return QueueLoad(ready=max(0, state.ready - state.parked) + state.overdue, due=due, run_us=run_us)


def _ranges(start_us: int, minutes: int) -> Iterator[tuple[int, int]]:
    """Yield the first minute of each quarter by the clock, and the one after its last, counted from the start."""
    first = 0
    while first < minutes:
        past = (start_us // MINUTE_US + first) % 15
        last = min(first + 15 - past, minutes)
        yield first, last
        first = last


def _run_times(view: StoreView, queues: Sequence[str]) -> tuple[dict[str, float], list[str]]:
    """Return the mean run time of each queue, and the queues of which none is known."""
    series, now_us = view.snapshot.metrics, view.now_us
    of_all = mean_run_us(series.get(ALL_JOBS, b""), now_us=now_us) or _UNKNOWN_RUN_US
    known = {name: mean_run_us(series.get(queue_dimension(name), b""), now_us=now_us) for name in queues}
    return {name: us or of_all for name, us in known.items()}, [name for name, us in known.items() if us is None]


def _heavy(
    due: Mapping[str, Sequence[int]], run_us: Mapping[str, float], workers: Sequence[WorkerSlots]
) -> dict[int, list[str]]:
    """Return the quarters, with queues, whose work may take longer than a minute if all of it is due at once."""
    found = []
    for name, counts in due.items():
        slots = sum(worker.slots for worker in workers if name in worker.queues)
        found += [
            (number * run_us[name], quarter, name)
            for quarter, number in enumerate(counts[NEXT_MINUTES:], NEXT_MINUTES)
            if slots and number * run_us[name] > slots * LATE_US / 2
        ]
    heavy: dict[int, list[str]] = {}
    for _work, quarter, name in sorted(found, reverse=True)[:_MOST_QUARTERS]:
        heavy.setdefault(quarter, []).append(name)
    return heavy


def _minutes(
    view: StoreView, start_us: int, wanted: Sequence[tuple[tuple[int, int], list[str]]]
) -> dict[tuple[int, str], list[float]]:
    """Return the jobs due in each minute of these quarters: (first minute, queue) -> numbers."""
    if not wanted:
        return {}

    def of_shard(shard: int) -> Reading[list[dict[str, list[int]]]]:
        dashboard = view.store.dashboard(shard)
        return together(
            [
                dashboard.read_due_histogram(
                    [max(view.now_us, start_us + minute * MINUTE_US) for minute in range(first, last + 1)], queues=names
                )
                for (first, last), names in wanted
            ]
        )

    by_shard = view.reads.read(of_shard)
    found: dict[tuple[int, str], list[float]] = {}
    for number, ((first, last), names) in enumerate(wanted):
        counts = summed(histograms[number] for histograms in by_shard.values())
        for name in names:
            found[first, name] = [float(each) for each in counts.get(name, [0] * (last - first))]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What the model says about the last hour, beside what happened."""

    #: Finished jobs that were due within it, and since when they are known (µs): Redis keeps the newest endings alone.
    jobs: int
    since_us: int
    #: The longest start delay, as computed and as it was.
    computed_us: int
    actual_us: int
    #: The mean difference of the longest delays of each minute.
    off_us: int


def compare(view: StoreView, endings: Iterable[Ending]) -> Comparison | None:
    """Compute the delays of those jobs that ended within the last hour; None if none did."""
    start_us = view.now_us // MINUTE_US * MINUTE_US - HOUR_US
    ran = [
        (each.queue, (each.started_us - each.lag_us - start_us) // MINUTE_US, each.lag_us, each.run_us)
        for each in endings
        if each.started_us is not None and each.lag_us is not None and each.run_us is not None
    ]
    ran = [each for each in ran if 0 <= each[1] < HOUR_US // MINUTE_US]
    if not ran:
        return None
    due: dict[str, list[float]] = {}
    took: dict[str, list[int]] = {}
    actual = [0] * (HOUR_US // MINUTE_US)
    for name, minute, lag_us, run_us in ran:
        due.setdefault(name, [0.0] * len(actual))[minute] += 1
        took.setdefault(name, []).append(run_us)
        actual[minute] = max(actual[minute], lag_us)
    loads = {
        name: QueueLoad(ready=0, due=counts, run_us=sum(took[name]) / len(took[name])) for name, counts in due.items()
    }
    steps = forecast(loads, _workers(view, list(due)), step_us=MINUTE_US)
    # What the model does not see end within the hour took until its end at least.
    computed = [HOUR_US if step.delay_us is None else step.delay_us for step in steps]
    busy = [at for at, step in enumerate(steps) if step.due]
    return Comparison(
        jobs=len(ran),
        since_us=start_us + min(busy) * MINUTE_US,
        computed_us=max(computed[at] for at in busy),
        actual_us=max(actual),
        off_us=sum(abs(computed[at] - actual[at]) for at in busy) // len(busy),
    )
