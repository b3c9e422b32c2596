"""Calendar: the jobs of recurring schedules in the coming week by the hour, or how long they will run."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from typing import NamedTuple

from django.utils.formats import date_format
from django.utils.translation import gettext as _

from django_delayq.admin.lists.filters import url_name
from django_delayq.admin.page import PageContext, PageResponse
from django_delayq.admin.views.schedules.load import HOURS, MOST, SAMPLE, Load, WeekLoad, week_load
from django_delayq.clock import DAY_US, HOUR_US, SECOND_US
from django_delayq.display.text import printable
from django_delayq.templatetags.delayq import duration_text, grouped, zoned

#: Most tasks that are listed.
_TASKS = 20
#: Shades of a cell that has jobs.
_SHADES = 5


class Cell(NamedTuple):
    """One hour of a day."""

    #: Both are empty if the hour is not in the coming week.
    text: str = ""
    title: str = ""
    #: 0 to 5: how much it has of what the fullest hour has.
    shade: int = 0


class TaskLoad(NamedTuple):
    """The load of one task."""

    task: str
    load: Load

    @property
    def name(self) -> str:
        """Its dotted name as displayed."""
        return printable(self.task)

    @property
    def in_query(self) -> str:
        """Its name in URLs."""
        return url_name(self.task)

    @property
    def run_us(self) -> float | None:
        """How long its jobs will run together; None if nobody knows."""
        return None if self.load.unknown >= self.load.jobs else self.load.run_us

    @property
    def mean_us(self) -> float | None:
        """How long one of them will run."""
        return None if self.run_us is None else self.run_us / (self.load.jobs - self.load.unknown)


def show(page: PageContext) -> PageResponse:
    """Return the page; see `load.week_load()` for its cost."""
    by_run_time = page.request.GET.get("show") == "time"
    # Hours begin as on the reader's clock.
    local = zoned(page.now_us, page.timezone)
    first_us = page.now_us - (local.minute * 60 + local.second) * SECOND_US - local.microsecond
    read = "most" if page.request.GET.get("read") == "most" else ""
    week = week_load(page, first_us, most=MOST if read else SAMPLE)
    size: Callable[[Load], float] = (lambda load: load.run_us) if by_run_time else (lambda load: load.jobs)
    fullest = max(range(HOURS), key=lambda number: size(week.hours[number]))
    by_jobs, by_time = page.url("recurring_calendar", read=read), page.url("recurring_calendar", show="time", read=read)
    return page.render(
        "calendar.html",
        tab="recurring",
        title=_("Calendar"),
        crumb=_("Recurring schedules"),
        crumb_url=page.url("recurring"),
        days=list(_days(page, week, first_us, size, by_run_time=by_run_time)),
        clock_hours=[f"{hour:02}" for hour in range(24)],
        week=week,
        whole=week.whole.rounded(),
        fullest=week.hours[fullest].rounded(),
        fullest_us=first_us + fullest * HOUR_US,
        tasks=_tasks(week),
        more_tasks=max(0, len(week.tasks) - _TASKS),
        views=[(_("Jobs"), by_jobs, not by_run_time), (_("Run time"), by_time, by_run_time)],
        most=MOST,
        most_url="" if read else page.url("recurring_calendar", show="time" if by_run_time else "", read="most"),
        zone=str(page.timezone),
    )


def _days(
    page: PageContext, week: WeekLoad, first_us: int, size: Callable[[Load], float], *, by_run_time: bool
) -> Iterator[tuple[str, list[Cell]]]:
    """Yield each day with its 24 hours by the reader's clock; an hour that comes twice is one cell."""
    cells = defaultdict[tuple[date, int], Load](Load)
    for number, load in enumerate(week.hours):
        at = zoned(first_us + number * HOUR_US, page.timezone)
        cells[at.date(), at.hour].add(load)
    most = max(map(size, cells.values()))
    (day, _first), *_more, (last, _last) = list(cells)
    while day <= last:
        row = []
        for hour in range(24):
            if (day, hour) not in cells:
                row.append(Cell())
                continue
            load = cells[day, hour]
            shade = max(1, round(size(load) / most * _SHADES)) if size(load) else 0
            row.append(Cell(_text(load, by_run_time=by_run_time), _title(day, hour, load), shade))
        yield date_format(day, "D j"), row
        day += timedelta(days=1)


def _text(load: Load, *, by_run_time: bool) -> str:
    if not load.jobs:
        return "·"
    return short_time(load.run_us) if by_run_time else short_number(load.jobs)


def _title(day: date, hour: int, load: Load) -> str:
    facts = {
        "day": date_format(day, "D j M"),
        "hour": f"{hour:02}:00",
        "jobs": grouped(load.jobs),
        "time": duration_text(round(load.run_us)),
    }
    return _("%(day)s, %(hour)s: jobs %(jobs)s, run time %(time)s") % facts


def _tasks(week: WeekLoad) -> list[TaskLoad]:
    """Return the tasks whose jobs run longest, then those with the most jobs."""
    found = sorted(week.tasks.items(), key=lambda item: (-item[1].run_us, -item[1].jobs, item[0]))
    return [TaskLoad(task, load) for task, load in found[:_TASKS] if load.jobs]


def short_time(us: float) -> str:
    """Return a time in few characters: `12s`, `39m`, `1.7h`."""
    seconds = us / SECOND_US
    for size, letter in ((DAY_US // SECOND_US, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            number = seconds / size
            return f"{grouped(number, 1 if number < 9.95 and letter != 'm' else 0)}{letter}"
    return f"{grouped(seconds, 1 if 0 < seconds < 0.95 else 0)}s"


def short_number(number: float) -> str:
    """Return a number in few characters: `940`, `12k`, `3.4M`."""
    if number >= 999_500:
        return f"{grouped(number / 1_000_000, 1 if number < 9_950_000 else 0)}M"
    return f"{grouped(number / 1_000)}k" if number >= 9_999.5 else grouped(number)
