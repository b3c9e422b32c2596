"""Places: the four lists of jobs that people look at and act on, and what a page reads of one of them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from django.utils.formats import number_format
from django.utils.translation import gettext_lazy as _

from django_delayq.admin.filters import Cursor, Filter
from django_delayq.admin.page import PageContext
from django_delayq.job.job import State
from django_delayq.store.queries.job_pages import JobPage, JobRow
from django_delayq.store.queries.lookup import MAX_ROWS
from django_delayq.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class JobList:
    """One list."""

    #: As addresses call it.
    name: str
    state: State
    title: Any
    #: What it is turned round by, and back.
    sort_labels: tuple[Any, Any]
    #: Whether it begins with the highest score: the newest death.
    newest_first: bool = False
    #: Whether Redis keeps its jobs by queue.
    by_queue: bool = True
    #: Whether its scores are times, and "within the next hour" lies ahead.
    timed: bool = True
    ahead: bool = False

    def queues(self, visit: PageContext, queue: str) -> Sequence[str]:
        """Return the queues to read."""
        if not self.by_queue:
            return ()
        return [queue] if queue else list(visit.snapshot.queues)

    def address(self, visit: PageContext, queue: str, query: str) -> str:
        """Return the list's address with a query string; the ready list is one queue's page."""
        path = visit.url("queue_detail", queue) if self is READY else visit.url(self.name)
        return f"{path}?{query}" if query else path


PENDING = JobList(
    name="pending",
    title=_("Pending tasks"),
    sort_labels=(_("Latest first"), _("Soonest first")),
    state=State.SCHEDULED,
    ahead=True,
)
READY = JobList(
    name="ready",
    title=_("Ready tasks"),
    sort_labels=(_("Last to be taken first"), _("First to be taken first")),
    state=State.READY,
    timed=False,
)
RUNNING = JobList(
    name="running",
    title=_("Running tasks"),
    sort_labels=(_("Longest lease first"), _("Shortest lease first")),
    state=State.CLAIMED,
    by_queue=False,
    timed=False,
)
DEAD = JobList(
    name="dead",
    title=_("Dead letters"),
    sort_labels=(_("Oldest first"), _("Newest first")),
    state=State.DEAD,
    newest_first=True,
    by_queue=False,
)
JOB_LISTS = {place.name: place for place in (PENDING, READY, RUNNING, DEAD)}


def counted(words: Any, number: int, **facts: object) -> str:
    """Return words in singular or plural with the number in them, grouped as the language does."""
    return str(words % {"n": number, "count": number_format(number, force_grouping=True), **facts})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobListPage:
    """The rows of one page, in the order of the screen, and where the page lies in its list."""

    rows: list[JobRow]
    #: Numbers of the first and last row, counted from 1, among all within the time asked for.
    first: int
    last: int
    total: int
    #: Rows looked at one by one; None where that was not needed.
    scanned: int | None
    #: Where the next page begins and the previous one ends; None where there is none.
    onward: Cursor | None
    back: Cursor | None
    #: In place of `rows`, where asked for: all that matched among those looked at.
    matched: list[JobRow] = field(default_factory=list)

    @property
    def matching(self) -> int | None:
        """How many rows are meant in all, where this page tells."""
        if self.scanned is None:
            return self.total
        return len(self.rows) if self.scanned >= self.total else None


def read(visit: PageContext, place: JobList, asked: Filter, *, gather: bool = False) -> JobListPage:
    """Read one page, or gather what a scan finds; a round trip a shard."""
    asked = asked.with_absolute_times(visit.now_us, ahead=place.ahead) if asked.within else asked
    downward = place.newest_first != asked.reversed
    before, cursor = asked.before != downward, asked.cursor
    if cursor is None and asked.at_us is not None and place.timed:
        cursor = (asked.at_us + downward, b"")
    match = asked.match(visit.config.redact, by_queue=not place.by_queue)
    gathered: list[JobRow] = []
    if gather:
        fits = match
        # The store takes no for an answer, and goes on.
        match = partial(_gathers, fits, gathered)
    rows, rank, looked, total, end = _merged(
        visit.store,
        place,
        queues=place.queues(visit, asked.queue),
        cursor=cursor,
        before=before,
        count=asked.count,
        from_us=asked.from_us if place.timed else None,
        to_us=asked.to_us if place.timed else None,
        match=match,
    )
    lower = rows[0].cursor if rows and rank else None
    upper = rows[-1].cursor if rows and rank + looked < total else None
    lower, upper = (end, upper) if before else (lower, end)
    onward, back = (lower, upper) if downward else (upper, lower)
    return JobListPage(
        rows=rows[::-1] if downward else rows,
        first=(total - rank - looked if downward else rank) + 1,
        last=total - rank if downward else rank + looked,
        total=total,
        scanned=looked if match else None,
        onward=onward,
        back=back,
        matched=[row for row in gathered if end is None or (row.cursor >= end if before else row.cursor <= end)],
    )


def iter_pages(
    visit: PageContext,
    place: JobList,
    asked: Filter,
    *,
    match: Callable[[JobRow], bool] | None,
    shard: int = 0,
    cursor: Cursor | None = None,
    before: bool = False,
) -> Iterator[tuple[int, JobPage]]:
    """Yield the whole list in pages, each with its shard, one shard after the other; from a row of one on."""
    queues = place.queues(visit, asked.queue)
    for number in range(shard, visit.store.config.shards):
        left = True
        while left:
            page = visit.store.lookup(number).page(
                place.state,
                queues=queues,
                cursor=cursor,
                before=before,
                count=MAX_ROWS,
                from_us=asked.from_us if place.timed else None,
                to_us=asked.to_us if place.timed else None,
                match=match,
            )
            yield number, page
            cursor, left = page.end, page.end is not None


def _gathers(fits: Callable[[JobRow], bool] | None, gathered: list[JobRow], row: JobRow) -> bool:
    if fits is None or fits(row):
        gathered.append(row)
    return False


def _merged(
    store: Store, place: JobList, *, cursor: Cursor | None, before: bool, count: int, **asked: Any
) -> tuple[list[JobRow], int, int, int, Cursor | None]:
    """Return rows of all shards, the rank of the first row looked at, how many were, of how many, and how far."""
    pages = [
        store.lookup(shard).page(place.state, cursor=cursor, before=before, count=count, **asked)
        for shard in range(store.config.shards)
        if asked["queues"] or not place.by_queue
    ]
    rows = sorted((row for page in pages for row in page.rows), key=lambda row: row.cursor)
    total, looked = sum(page.total for page in pages), sum(page.scanned for page in pages)
    rank = sum(page.rank for page in pages)
    ends = [page.end for page in pages if page.end is not None]
    # Behind the nearest of the places where shards stopped, one may miss what another shows.
    end = (max(ends) if before else min(ends)) if ends else None
    kept = [row for row in rows if end is None or (row.cursor >= end if before else row.cursor <= end)]
    if len(kept) > count:
        kept = kept[-count:] if before else kept[:count]
        end = kept[0 if before else -1].cursor
    if asked["match"] is None:
        rank += (len(rows) - len(kept)) if before else 0
        looked = len(kept)
    return kept, rank, looked, total, end
