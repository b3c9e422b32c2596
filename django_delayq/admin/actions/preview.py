"""Counting: how many jobs an order is about, and the first of them, for the page that asks whether it is meant.

A count that takes longer than one request may take goes on in several requests. The confirm page is shown once the
count is complete, and the action changes no more jobs than that number.
"""

from dataclasses import replace
from itertools import chain
from time import monotonic

from django_delayq.admin import job_lists
from django_delayq.admin.actions.requests import ActionRequest, Progress, RowToken
from django_delayq.admin.actions.run import row_predicate, was_there
from django_delayq.admin.filters import SIZES
from django_delayq.admin.job_rows import JobLine
from django_delayq.admin.page import PageContext
from django_delayq.store.queries.job_pages import JobRow

#: Rows shown before an action.
SAMPLE = 5
#: Seconds of one request for counting, and for looking whether more match afterwards.
_SECONDS, _LOOKING = 1.0, 0.5


def count_and_sample(visit: PageContext, order: ActionRequest, progress: Progress) -> tuple[ActionRequest, Progress]:
    """Count for up to a second; the order then says how many there are so far, and whether these are all."""
    if order.selected:
        lines = [_looked_up(visit, token) for token in list(order.tokens)[:SAMPLE]]
        return replace(order, sample=tuple(_words(line) for line in lines if line)), progress
    place = order.job_list
    if order.parsed_filter.match(visit.config.redact, by_queue=not place.by_queue) is None:
        listing = job_lists.read(visit, place, replace(order.parsed_filter, count=SIZES[0]))
        return replace(_with_sample(visit, order, listing.rows), count=listing.total, counted=True), progress
    return _count_on(visit, order, progress)


def more_match(visit: PageContext, order: ActionRequest, progress: Progress) -> bool:
    """Return whether jobs match now that a finished order left alone: they came after it was counted.

    Looks for up to half a second; more are not promised to be found.
    """
    until, match = monotonic() + _LOOKING, order.now.match(visit.config.redact, by_queue=not order.job_list.by_queue)

    def came_since(row: JobRow) -> bool:
        return not was_there(order, row) and (match is None or match(row))

    beyond = job_lists.iter_pages(
        visit,
        order.job_list,
        order.parsed_filter,
        match=row_predicate(visit, order),
        shard=progress.shard,
        cursor=progress.cursor,
        before=order.moves_up,
    )
    new = job_lists.iter_pages(visit, order.job_list, order.now, match=came_since, before=order.job_list.newest_first)
    for _shard, page in chain(beyond if progress.handled >= order.count else (), new):
        if page.rows:
            return True
        if monotonic() > until:
            break
    return False


def _count_on(visit: PageContext, order: ActionRequest, progress: Progress) -> tuple[ActionRequest, Progress]:
    place, until = order.job_list, monotonic() + _SECONDS
    pages = job_lists.iter_pages(
        visit,
        place,
        order.parsed_filter,
        match=row_predicate(visit, order),
        shard=progress.shard,
        cursor=progress.cursor,
        before=place.newest_first,
    )
    for shard, page in pages:
        rows = page.rows[::-1] if place.newest_first else page.rows
        order = replace(_with_sample(visit, order, rows), count=order.count + len(rows))
        progress = replace(progress.after(shard, page.end), scanned=progress.scanned + page.scanned)
        if progress.shard < visit.store.config.shards and monotonic() > until:
            return order, progress
    return replace(order, counted=True), Progress()


def _with_sample(visit: PageContext, order: ActionRequest, rows: list[JobRow]) -> ActionRequest:
    more = rows[: SAMPLE - len(order.sample)]
    return replace(order, sample=(*order.sample, *(_words(JobLine(row, visit.config.redact)) for row in more)))


def _words(line: JobLine) -> str:
    return " ".join(filter(None, (line.short_id, line.call, str(line.error_summary))))


def _looked_up(visit: PageContext, token: RowToken) -> JobLine | None:
    """Return a ticked row as it is now; nothing where it is gone."""
    if token.shard >= visit.store.config.shards:
        return None
    found = visit.store.lookup(token.shard).find(token.raw_id)
    return None if found.ended else JobLine.of(found, visit.config.redact)
