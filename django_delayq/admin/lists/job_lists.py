"""The lists of jobs on the pages, and what a page reads of one of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from django.utils.formats import number_format
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from django_delayq.admin.lists.error_groups import GroupChoice
from django_delayq.admin.lists.filters import OVERDUE, Cursor, Filter
from django_delayq.admin.page import PageContext
from django_delayq.job.job import State
from django_delayq.store.client.reading import Reading, together
from django_delayq.store.queries.job_pages import JobPage, JobRow
from django_delayq.store.queries.lookup import Lookup


@dataclass(frozen=True, slots=True, kw_only=True)
class JobList:
    """One list."""

    #: Its name in addresses and forms.
    name: str
    state: State
    title: Any
    #: The label of the link that reverses the list, and of the link that reverses it back.
    sort_labels: tuple[Any, Any]
    #: What its times are, and the values of the filter's `within` by their labels.
    moment_label: Any = ""
    spans: Mapping[str, Any] = field(default_factory=dict)
    #: The cells of a row by their names in `job_rows`; the template has the headings.
    cells: tuple[str, ...]
    #: From the list's address to the folder of the pages of jobs.
    to_jobs: str = "../job/"
    #: Whether it begins with the highest score: the job that failed last.
    newest_first: bool = False
    #: Whether Redis keeps its jobs by queue.
    by_queue: bool = True
    #: The action of the button that the script adds to each row; empty: rows have none.
    row_action: str = ""
    #: Whether its scores are times; and whether "within the next hour" is in the future.
    timed: bool = True
    ahead: bool = False

    def queues(self, page: PageContext, queue: str) -> Sequence[str]:
        """Return the queues to read."""
        if not self.by_queue:
            return ()
        return [queue] if queue else list(page.snapshot.queues)

    def address(self, page: PageContext, queue: str, query: str) -> str:
        """Return the list's address with a query string; a list of ready jobs is its queue's page."""
        path = page.url("queue_detail", queue) if self is READY else page.url(self.name)
        return f"{path}?{query}" if query else path


SCHEDULED = JobList(
    name="scheduled",
    title=_("Scheduled jobs"),
    sort_labels=(_("Latest first"), _("Soonest first")),
    cells=("moment", "task", "call", "queue", "attempt", "id"),
    state=State.SCHEDULED,
    row_action="run_now",
    moment_label=_("due"),
    spans={
        OVERDUE: _("overdue"),
        "15m": _("next 15 min"),
        "1h": _("next hour"),
        "24h": _("next 24 h"),
        "7d": _("next 7 days"),
    },
    ahead=True,
)
READY = JobList(
    name="ready",
    title=_("Ready jobs"),
    sort_labels=(_("Last to be taken first"), _("First to be taken first")),
    cells=("moment", "task", "call", "attempt", "id"),
    to_jobs="../../job/",
    state=State.READY,
    timed=False,
)
RUNNING = JobList(
    name="running",
    title=_("Running jobs"),
    sort_labels=(_("Longest lease first"), _("Shortest lease first")),
    cells=("started", "task", "call", "queue", "attempt", "progress", "worker", "lease", "id"),
    state=State.CLAIMED,
    by_queue=False,
    timed=False,
)
#: Dead letters. The screens call a job failed only if it will not be retried; else an attempt has failed.
FAILED = JobList(
    name="failed",
    title=_("Failed jobs"),
    sort_labels=(_("Oldest first"), _("Newest first")),
    cells=("moment", "task", "error", "attempt", "queue", "id"),
    state=State.DEAD,
    row_action="retry",
    moment_label=_("failed"),
    spans={"15m": _("last 15 min"), "1h": _("last hour"), "24h": _("last 24 h"), "7d": _("last 7 days")},
    newest_first=True,
    by_queue=False,
)
#: Jobs that ended. No action, export or cursor of the others takes them: *Finished* shows them by itself.
FINISHED = JobList(
    name="finished",
    title=_("Finished jobs"),
    sort_labels=("", ""),
    cells=(),
    state=State.DONE,
    moment_label=pgettext_lazy("moment", "ended"),
    spans=FAILED.spans,
    newest_first=True,
    by_queue=False,
)
JOB_LISTS = {job_list.name: job_list for job_list in (SCHEDULED, READY, RUNNING, FAILED)}


def counted(text: Any, number: int) -> str:
    """Return a text in singular or plural with the number in it, its digits grouped by the language."""
    return str(text % {"n": number, "count": number_format(number, force_grouping=True)})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobListPage:
    """The rows of one page, in the order of the screen, and the page's position in its list."""

    rows: list[JobRow]
    #: Numbers of the first and last row, from 1, among all rows within the filter's times.
    first: int
    last: int
    total: int
    #: Rows that a scan examined one by one; None without a scan.
    scanned: int | None
    #: Where the next page begins and the previous one ends; None if there is none.
    next_cursor: Cursor | None
    previous_cursor: Cursor | None

    @property
    def matching(self) -> int | None:
        """How many rows of the whole list match; None if this page does not know."""
        if self.scanned is None:
            return self.total
        return len(self.rows) if self.scanned >= self.total else None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobQuery:
    """What to read of a list for a filter, and which of the rows match it."""

    #: Options of `Lookup.read_page()`; None: no job can match.
    options: Mapping[str, Any] | None
    #: The test for a row; None: all rows match, so Redis counts them without a scan.
    match: Callable[[JobRow], bool] | None
    #: Whether the test needs the bodies of the jobs.
    reads_bodies: bool = False

    @classmethod
    def of(
        cls,
        page: PageContext,
        job_list: JobList,
        job_filter: Filter,
        *,
        test: Callable[[JobRow], bool] | None = None,
    ) -> Self:
        """Return the query of a filter with absolute times, and of a further `test` for each row."""
        choice = None
        if job_list is FAILED and (job_filter.task or job_filter.error or job_filter.error_group):
            choice = GroupChoice.of(job_filter, page.error_groups)
        matches = job_filter.match(
            page.config.redact, by_queue=not job_list.by_queue, by_error=choice is None or choice.is_mixed
        )
        queues = job_list.queues(page, job_filter.queue)
        options: dict[str, Any] = {"queues": queues, "groups": choice.digests if choice else ()}
        if job_list.timed:
            options |= {"from_us": job_filter.from_us, "to_us": job_filter.to_us}
        is_empty = (job_list.by_queue and not queues) or (choice is not None and not choice.digests)
        tests = [each for each in (test, matches) if each]
        return cls(
            options=None if is_empty else options,
            match=(lambda row: all(each(row) for each in tests)) if tests else None,
            reads_bodies=matches is not None,
        )


def read(page: PageContext, job_list: JobList, job_filter: Filter) -> JobListPage:
    """Read one page of the shards that answer; one round trip, and one more to know the error groups."""
    [found] = read_several(page, [(job_list, job_filter)])
    return found


def read_several(page: PageContext, wanted: Sequence[tuple[JobList, Filter]]) -> list[JobListPage]:
    """Read one page of each of several lists side by side, as `read()` does; no more round trips than for one."""
    scans = [_Scan.of(page, *each) for each in wanted]
    asked = [scan for scan in scans if scan.query.options is not None]

    def of_shard(shard: int) -> Reading[list[JobPage]]:
        lookup = page.store.lookup(shard)
        return together([scan.read(lookup) for scan in asked])

    found = list(page.reads.read(of_shard).values()) if asked else []
    batches = {id(scan): [of_shard[at] for of_shard in found] for at, scan in enumerate(asked)}
    return [scan.page(batches.get(id(scan), [])) for scan in scans]


def count(page: PageContext, job_list: JobList, job_filter: Filter, shard: int) -> int:
    """Return how many jobs of one shard match a filter whose jobs Redis counts without a scan."""
    query = JobQuery.of(page, job_list, job_filter)
    if query.options is None:
        return 0
    return page.store.lookup(shard).page(job_list.state, count=1, **query.options).total


def iter_batches(
    page: PageContext,
    job_list: JobList,
    job_filter: Filter,
    *,
    test: Callable[[JobRow], bool] | None = None,
    shard: int = 0,
    cursor: Cursor | None = None,
    before: bool = False,
    bodies: bool = True,
) -> Iterator[tuple[int, JobPage]]:
    """Yield the rest of the matching rows after a row of a shard, in batches, each with its shard; shard after shard.

    With `test`, each row must pass it, too; it needs no body. Without `bodies`, rows have none if the filter needs
    none, which is several times as fast. Shards whose server does not answer are left out.
    """
    query = JobQuery.of(page, job_list, job_filter, test=test)
    for number in page.answering if query.options is not None else ():
        if number < shard:
            continue
        lookup = page.store.lookup(number)
        batches = lookup.batches(
            job_list.state,
            cursor=cursor,
            before=before,
            bodies=bodies or query.reads_bodies,
            match=query.match,
            **query.options or {},
        )
        yield from ((number, batch) for batch in batches)
        cursor = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scan:
    """The reading of one page of a list."""

    job_list: JobList
    query: JobQuery
    cursor: Cursor | None
    before: bool
    descending: bool
    count: int

    @classmethod
    def of(cls, page: PageContext, job_list: JobList, job_filter: Filter) -> Self:
        if job_filter.within:
            job_filter = job_filter.with_absolute_times(page.now_us, ahead=job_list.ahead)
        descending = job_list.newest_first != job_filter.reversed
        cursor = job_filter.cursor
        if cursor is None and job_filter.at_us is not None and job_list.timed:
            cursor = (job_filter.at_us + descending, b"")
        return cls(
            job_list=job_list,
            query=JobQuery.of(page, job_list, job_filter),
            cursor=cursor,
            before=job_filter.before != descending,
            descending=descending,
            count=job_filter.count,
        )

    def read(self, lookup: Lookup) -> Reading[JobPage]:
        """Return the reading of one shard."""
        return lookup.read_page(
            self.job_list.state,
            cursor=self.cursor,
            before=self.before,
            count=self.count,
            match=self.query.match,
            **self.query.options or {},
        )

    def page(self, batches: Sequence[JobPage]) -> JobListPage:
        """Return the page of all shards together."""
        scan = self._joined(batches)
        rows, end = scan.rows, scan.end
        lower = rows[0].cursor if rows and scan.rank else None
        upper = rows[-1].cursor if rows and scan.rank + scan.scanned < scan.total else None
        lower, upper = (end, upper) if self.before else (lower, end)
        next_cursor, previous_cursor = (lower, upper) if self.descending else (upper, lower)
        return JobListPage(
            rows=rows[::-1] if self.descending else rows,
            first=(scan.total - scan.rank - scan.scanned if self.descending else scan.rank) + 1,
            last=scan.total - scan.rank if self.descending else scan.rank + scan.scanned,
            total=scan.total,
            scanned=scan.scanned if self.query.match else None,
            next_cursor=next_cursor,
            previous_cursor=previous_cursor,
        )

    def _joined(self, batches: Sequence[JobPage]) -> JobPage:
        before, count = self.before, self.count
        rows = sorted((row for batch in batches for row in batch.rows), key=lambda row: row.cursor)
        ends = [batch.end for batch in batches if batch.end is not None]
        # Beyond the nearest place where a shard stopped, that shard may have rows that it did not return.
        end = (max(ends) if before else min(ends)) if ends else None
        kept = _up_to(end, rows, before=before)
        if len(kept) > count:
            kept = kept[-count:] if before else kept[:count]
            end = kept[0 if before else -1].cursor
        rank, scanned = sum(batch.rank for batch in batches), sum(batch.scanned for batch in batches)
        if self.query.match is None:
            rank += (len(rows) - len(kept)) if before else 0
            scanned = len(kept)
        total = sum(batch.total for batch in batches)
        return JobPage(rank=rank, total=total, rows=kept, scanned=scanned, end=end)


def _up_to(end: Cursor | None, rows: list[JobRow], *, before: bool) -> list[JobRow]:
    """Return the rows on this side of where the scan stopped."""
    return [row for row in rows if end is None or (row.cursor >= end if before else row.cursor <= end)]
