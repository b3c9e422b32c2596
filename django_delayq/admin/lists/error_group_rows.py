"""Error groups as the page of failed jobs shows them: a row for each error of each task, or for each task."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from django.http import QueryDict
from django.utils.translation import gettext as _

from django_delayq.admin.errors import ErrorSummary
from django_delayq.admin.lists.error_groups import GroupChoice, GroupOfShards
from django_delayq.admin.lists.filters import ORDERS, Filter
from django_delayq.admin.lists.job_lists import FAILED
from django_delayq.admin.page import PageContext
from django_delayq.clock import DAY_US
from django_delayq.display.text import printable, short

#: Bars of the small chart; without a filter of time they are the hours of the last day.
_BARS = 24


@dataclass(slots=True, kw_only=True)
class GroupRow:
    """Failed jobs with the same task; and with the same error, if they are grouped by it."""

    error: ErrorSummary
    task: str
    #: The list of them, and its filter for the action forms; empty if no filter selects exactly these.
    url: str
    filter_query: str
    count: int = 0
    #: When one came first and last, also of those that are gone (µs); 0 = unknown.
    first_us: int = 0
    last_us: int = 0
    bars: Sequence[int] = ()
    #: Whether the first one came within a day.
    is_new: bool = False

    @property
    def title(self) -> str:
        """What they have in common."""
        task = printable(short(self.task)) or "?"
        if not self.error.error:
            return task
        return _("%(error)s in %(task)s") % {"error": self.error.name, "task": task}

    @property
    def path(self) -> str:
        """The small chart as the `d` of an SVG path in a box of 96 x 20: a stroke for each bar with jobs."""
        highest = max(self.bars, default=0)
        strokes = ((at, max(1, round(20 * number / highest))) for at, number in enumerate(self.bars) if number)
        return "".join(f"M{4 * at + 2} 20v-{height}" for at, height in strokes)


class GroupRows(NamedTuple):
    """The rows of a page, and what they are a part of."""

    rows: Sequence[GroupRow]
    #: Groups that match, and their jobs.
    total: int
    jobs: int
    order: str


_KEYS: dict[str, Callable[[GroupRow], tuple[int, int]]] = {
    "jobs": lambda row: (-row.count, -row.last_us),
    "last": lambda row: (-row.last_us, -row.count),
    "first": lambda row: (-row.first_us, -row.count),
}


def group_rows(page: PageContext, job_filter: Filter) -> GroupRows:
    """Return the groups that match. Exact at any size; two round trips."""
    order = job_filter.order or ORDERS[0]
    job_filter = job_filter.with_absolute_times(page.now_us, ahead=False)
    chosen = [page.error_groups[digest] for digest in GroupChoice.of(job_filter, page.error_groups).digests]
    found, key = _rows(page, job_filter, chosen), _KEYS[order]
    if job_filter.from_us is None and job_filter.to_us is None:
        total, jobs = len(found), sum(row.count for row, _groups in found)
        # Redis counts the bars of those on the page alone.
        found = sorted(found, key=lambda pair: key(pair[0]))[: job_filter.count]
        _add_bars(page, found, start_us=page.now_us - DAY_US, end_us=page.now_us + 1)
        return GroupRows(rows=[row for row, _groups in found], total=total, jobs=jobs, order=order)
    _add_bars(page, found, start_us=job_filter.from_us or 0, end_us=job_filter.to_us or page.now_us + 1)
    rows = []
    for row, _groups in found:
        # The numbers of all times are replaced by those within the filter's.
        row.count = sum(row.bars)
        if row.count:
            rows.append(row)
    rows.sort(key=key)
    return GroupRows(rows=rows[: job_filter.count], total=len(rows), jobs=sum(row.count for row in rows), order=order)


def _rows(
    page: PageContext, job_filter: Filter, chosen: Iterable[GroupOfShards]
) -> list[tuple[GroupRow, list[GroupOfShards]]]:
    """Return a row for each group or task, with the groups that it stands for."""
    found: dict[Any, tuple[GroupRow, list[GroupOfShards]]] = {}
    for each in chosen:
        by_error = job_filter.group == "error"
        task = each.group.task if each.group else ""
        key = each.digest if by_error else task
        if key not in found:
            found[key] = _row(page, job_filter, each), []
        row, groups = found[key]
        groups.append(each)
        row.count += each.count
        row.first_us = min(filter(None, (row.first_us, each.first_us)), default=0)
        row.last_us = max(row.last_us, each.last_us)
        row.is_new = row.first_us > page.now_us - DAY_US
    return list(found.values())


def _row(page: PageContext, job_filter: Filter, each: GroupOfShards) -> GroupRow:
    task, error, message = each.group or ("", "", "")
    of_list = replace(job_filter, group="", order="")
    if job_filter.group == "error":
        summary = ErrorSummary(printable(error), printable(message)) if each.group else _other_errors()
        group_filter = replace(of_list, task="", error="", error_group=each.digest.hex())
    else:
        summary, group_filter = ErrorSummary("", ""), replace(of_list, task=f"={task}")
    query = group_filter.page()
    # No filter selects the jobs of no task, or of a name that no filter can hold.
    if Filter.read(QueryDict(query)) != group_filter.plain() or (job_filter.group == "task" and not task):
        query = ""
    url = query and FAILED.address(page, "", query)
    return GroupRow(error=summary, task=task, url=url, filter_query=query)


def _other_errors() -> ErrorSummary:
    return ErrorSummary(_("Other errors"), "")


def _add_bars(
    page: PageContext,
    rows: Sequence[tuple[GroupRow, Sequence[GroupOfShards]]],
    *,
    start_us: int,
    end_us: int,
) -> None:
    """Add the numbers of jobs within each 24th of a span; it ends up to 24 µs later, so that all are of one width."""
    digests = [each.digest for _row, groups in rows for each in groups]
    width_us = max(1, -(-(end_us - start_us) // _BARS))
    times = page.reads.read(
        lambda shard: page.store.error_groups(shard).read_times(
            digests, start_us=start_us, width_us=width_us, bars=_BARS
        )
    )
    bars = {
        digest: [sum(column) for column in zip(*(each.bars for each in of_shards), strict=True)]
        for digest, *of_shards in zip(digests, *times.values(), strict=True)
    }
    for row, groups in rows:
        row.bars = [sum(column) for column in zip(*(bars[each.digest] for each in groups), strict=True)]
