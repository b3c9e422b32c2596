"""Load: how many jobs recurring schedules have in each hour of the coming week, and how long these will run.

A schedule's jobs take as long as its last ones did on average; if none has ended, as long as those of other schedules
of its task.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from time import monotonic

from django_delayq import runtime
from django_delayq.admin.page import PageContext
from django_delayq.recurring.forecast import count_by_hour
from django_delayq.recurring.run import RunOutcome
from django_delayq.recurring.schedule import Schedule
from django_delayq.store.client.reading import Reading
from django_delayq.store.schedules.schedules import ScheduleBatch
from django_delayq.store.schedules.stored_schedule import ScheduleState, StoredSchedule

HOURS = 7 * 24
#: Most schedules that are read, and most if a person asks for more. The time for it is that for counting jobs.
SAMPLE, MOST = 1_000, 10_000
#: A schedule's rule, start and end: those with equal ones have equal occurrences.
_Occurrences = tuple[str, int | None, int | None]


@dataclass(slots=True)
class Load:
    """Jobs, and how long they will run together."""

    jobs: float = 0
    run_us: float = 0
    #: Those of the jobs whose run time nobody knows yet.
    unknown: float = 0

    def add(self, other: "Load", times: float = 1) -> None:
        """Add another load some times."""
        self.jobs += other.jobs * times
        self.run_us += other.run_us * times
        self.unknown += other.unknown * times

    def rounded(self) -> "Load":
        """Return it in whole jobs."""
        return Load(round(self.jobs), self.run_us, round(self.unknown))


@dataclass(slots=True)
class WeekLoad:
    """The load of the coming week."""

    hours: list[Load] = field(default_factory=lambda: [Load() for _ in range(HOURS)])
    #: Task -> its load.
    tasks: dict[str, Load] = field(default_factory=lambda: defaultdict(Load))
    #: How many schedules were looked at, and how many there are.
    looked_at: int = 0
    total: int = 0
    #: Those of them that plant no jobs.
    paused: int = 0
    unreadable: int = 0

    @property
    def is_estimate(self) -> bool:
        """Whether not all schedules were looked at; then all numbers are computed from those that were."""
        return self.looked_at < self.total

    @property
    def whole(self) -> Load:
        """The load of all hours."""
        total = Load()
        for hour in self.hours:
            total.add(hour)
        return total


@dataclass(slots=True)
class _Group:
    """The schedules of one task with equal occurrences."""

    schedules: int = 0
    #: How many of them have a mean run time, and the sum of these.
    known: int = 0
    mean_us: float = 0


def week_load(page: PageContext, first_us: int, *, most: int) -> WeekLoad:
    """Return the load of the hours from `first_us` on (µs since the epoch), without what has passed.

    It reads up to `most` schedules, in a round trip for each thousand; each rule is computed once.
    """
    week, until = WeekLoad(total=page.snapshot.schedules), monotonic() + runtime.current().bounds.count_seconds
    groups = defaultdict[_Occurrences, dict[str, _Group]](lambda: defaultdict(_Group))
    counts: dict[_Occurrences, list[int]] = {}
    for batch in _batches(page):
        week.looked_at += batch.damaged
        for stored in batch.schedules:
            week.looked_at += 1
            if schedule := _plants(stored, week, page.now_us):
                key = schedule.rule.text, schedule.start_us, schedule.end_us
                if key not in counts:
                    counts[key] = _count(schedule, page.now_us, first_us)
                assert stored.definition is not None
                group = groups[key][stored.definition.job.task]
                group.schedules += 1
                if (mean_us := _mean_us(stored)) is not None:
                    group.known += 1
                    group.mean_us += mean_us
            if monotonic() > until:
                break
        if week.looked_at >= most or monotonic() > until:
            break
    week.total = max(week.total, week.looked_at)
    # Redis keeps schedules in no order, so that the first ones are a fair sample of all.
    _add_up(week, groups, counts, times=week.total / max(1, week.looked_at))
    return week


def _batches(page: PageContext) -> Iterator[ScheduleBatch]:
    cursors = dict.fromkeys(page.answering, 0)
    while cursors:
        yield from (batches := page.reads.read(partial(_read_batch, page, cursors), cursors)).values()
        cursors = {shard: each.next_cursor for shard, each in batches.items() if each.next_cursor is not None}


def _read_batch(page: PageContext, cursors: Mapping[int, int], shard: int) -> Reading[ScheduleBatch]:
    return page.store.schedules(shard).read_batch(cursors[shard], count=max(1, SAMPLE // len(cursors)))


def _plants(stored: StoredSchedule, week: WeekLoad, now_us: int) -> Schedule | None:
    """Return the schedule if it plants jobs; else count it."""
    state = stored.state(now_us)
    week.paused += state is ScheduleState.PAUSED
    week.unreadable += state is ScheduleState.UNREADABLE
    if stored.definition is None or state in (ScheduleState.PAUSED, ScheduleState.UNREADABLE):
        return None
    return stored.definition.schedule


def _count(schedule: Schedule, now_us: int, first_us: int) -> list[int]:
    start_us = max(schedule.start_us or 0, now_us)
    return count_by_hour(schedule.rule, from_us=first_us, hours=HOURS, start_us=start_us, end_us=schedule.end_us)


def _mean_us(stored: StoredSchedule) -> float | None:
    """Return how long the last jobs of a schedule ran on average; None if none has ended."""
    took = [run.took_ms for run in stored.runs if run.outcome in (RunOutcome.DONE, RunOutcome.FAILED)]
    return sum(took) * 1_000 / len(took) if took else None


def _add_up(
    week: WeekLoad,
    groups: dict[_Occurrences, dict[str, _Group]],
    counts: dict[_Occurrences, list[int]],
    *,
    times: float,
) -> None:
    """Add the loads of the groups to the hours and the tasks."""
    # Task -> how many of its schedules have a mean run time, and the sum of these.
    of_tasks = defaultdict[str, _Group](_Group)
    for by_task in groups.values():
        for task, group in by_task.items():
            of_tasks[task].known += group.known
            of_tasks[task].mean_us += group.mean_us
    for key, by_task in groups.items():
        # The load of one occurrence.
        together, number = Load(), sum(counts[key])
        for task, group in by_task.items():
            load, new, of_task = Load(group.schedules, group.mean_us), group.schedules - group.known, of_tasks[task]
            if of_task.known:
                load.run_us += new * of_task.mean_us / of_task.known
            else:
                load.unknown = new
            together.add(load, times)
            week.tasks[task].add(load, times * number)
        for hour, count in zip(week.hours, counts[key], strict=True):
            if count:
                hour.add(together, count)
