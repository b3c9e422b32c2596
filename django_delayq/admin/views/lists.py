"""Lists: what the pages of all four places have in common: filter, rows, pager, and the deeds offered."""

from dataclasses import replace
from typing import Any

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.utils import timezone
from django.utils.translation import gettext as _

from django_delayq.admin import job_lists
from django_delayq.admin.actions.bulk_actions import offered
from django_delayq.admin.arguments import printable
from django_delayq.admin.errors import ErrorSummary
from django_delayq.admin.filters import SIZES, Filter, url_name, write_cursor
from django_delayq.admin.job_lists import PENDING, READY, RUNNING, JobList, JobListPage
from django_delayq.admin.job_rows import JobLine
from django_delayq.admin.page import PageContext
from django_delayq.job.ids import from_text
from django_delayq.store.queries.job_pages import JobRow
from django_delayq.store.queries.snapshot import QueueState
from django_delayq.task import registry
from django_delayq.templatetags.delayq import zoned

#: Characters of a name that is offered.
_LONGEST = 200


def show_list(visit: PageContext, place: JobList, *, title: str, tab: str = "", **more: Any) -> HttpResponse:
    """Draw a list; go straight to a job whose whole id was asked for, or that is next to another."""
    asked = replace(asked_of(visit), **more.pop("fixed", {}))
    if from_text(asked.text):
        return HttpResponseRedirect(visit.url("task_detail", asked.text))
    if "open" in visit.request.GET:
        return _next_to(visit, place, asked)
    listing = job_lists.read(visit, place, asked)
    return visit.render(
        f"{place.name}.html",
        tab=tab or place.name,
        title=title,
        **context(visit, place, asked, listing),
        **more,
    )


def asked_of(visit: PageContext) -> Filter:
    """Return what the address asks; times in it are of the zone that is shown."""
    with timezone.override(visit.timezone):
        return Filter.read(visit.request.GET)


def context(visit: PageContext, place: JobList, asked: Filter, listing: JobListPage) -> dict[str, Any]:
    """Return what every list's template needs."""

    def address(query: str) -> str:
        return place.address(visit, asked.queue, query)

    onward, back, met = listing.onward, listing.back, listing.rows or listing.matched
    # The page of one queue says so in its path.
    shared = replace(asked, queue="") if place is READY else asked
    return {
        "place": place,
        "asked": asked,
        "listing": listing,
        "lines": [JobLine(row, visit.config.redact, detail_url(visit, place, asked, row)) for row in listing.rows],
        "deeds": offered(place.name) if visit.may_manage else [],
        "list_url": address(""),
        "first_url": address(shared.page()),
        "last_url": address(shared.page(before=True)),
        "onward_url": address(shared.page(onward)) if onward else "",
        "back_url": address(shared.page(back, before=True)) if back else "",
        "clear_url": address(Filter(count=asked.count, reversed=asked.reversed).query()),
        "turn_label": place.sort_labels[asked.reversed],
        "turn_url": address(replace(shared, reversed=not asked.reversed).page()),
        "export_url": "?".join(filter(None, (visit.url("export", place.name), asked.page()))),
        "reached_us": listing.onward[0] if listing.scanned is not None and listing.onward and place.timed else None,
        "filtered": shared.is_set or shared.cursor is not None,
        "found": len(listing.rows) + len(listing.matched),
        "sizes": SIZES,
        "queues": _choices(visit.snapshot.queues, asked.queue),
        "functions": _offered({name: printable(name) for name in (*registry.names(), *(row.task for row in met))}),
        "errors": _offered({each.error: each.name for each in (ErrorSummary.of(row.attempts) for row in met)}),
        "function_text": url_name(asked.function) if asked.function else "",
        "error_text": url_name(asked.error) if asked.error else "",
        "queue_text": url_name(asked.queue) if asked.queue else "",
        # As text: a template groups the digits of numbers.
        "jump": [(name, str(value)) for name, value in shared.pairs(cursor=None, before=False, at_us=None).items()],
        "order": asked.page(),
        "everything": Filter(queue=asked.queue).query(),
        "page": shared.query(),
        "from_text": _local(visit, asked.from_us),
        "to_text": _local(visit, asked.to_us),
        "at_text": _local(visit, asked.at_us),
        "zone": str(visit.timezone),
    }


def detail_url(visit: PageContext, place: JobList, asked: Filter, row: JobRow) -> str:
    """Return the address of a row's own page, which leads back to the list, and on to the next row."""
    hints = {"list": place.name, "in": url_name(row.queue), "row": write_cursor(row.cursor)}
    return visit.url("task_detail", row.id, **hints, **asked.pairs(cursor=None, before=False, at_us=None))


def _next_to(visit: PageContext, place: JobList, asked: Filter) -> HttpResponse:
    listing = job_lists.read(visit, place, replace(asked, count=1))
    if listing.rows:
        asked = replace(asked, cursor=None, before=False)
        return HttpResponseRedirect(detail_url(visit, place, asked, listing.rows[0]))
    messages.info(visit.request, _("There is no other one in that direction."))
    return HttpResponseRedirect(place.address(visit, asked.queue, asked.page()))


def _choices(names: Any, chosen: str) -> list[tuple[str, str, bool]]:
    """Return the queues to choose from: as addresses call them, as people do, and whether it is chosen."""
    there = sorted({*names, chosen} - {""})
    return [(url_name(name), printable(name), name == chosen) for name in there]


def _offered(names: dict[str, str]) -> dict[str, str]:
    """Return names to choose from while typing: as addresses call them, and as people do."""
    return {url_name(name): words for name, words in sorted(names.items()) if 0 < len(name) <= _LONGEST}


def _local(visit: PageContext, us: int | None) -> str:
    """Return a moment as the browser's own field for it takes it."""
    return "" if us is None else zoned(us, visit.timezone).replace(tzinfo=None).isoformat(timespec="seconds")


def show_pending(visit: PageContext) -> HttpResponse:
    """Draw the list."""
    spans = {
        "overdue": _("overdue"),
        "15m": _("next 15 min"),
        "1h": _("next hour"),
        "24h": _("next 24 h"),
        "7d": _("next 7 days"),
    }
    return show_list(visit, PENDING, title=_("Pending tasks"), spans=spans, span_label=_("Due"))


def show_running(visit: PageContext) -> HttpResponse:
    """Draw the list."""
    return show_list(visit, RUNNING, title=_("Running tasks"))


def show_ready(visit: PageContext, queue: str) -> HttpResponse:
    """Draw the list, also of a queue that has no job yet."""
    state = visit.snapshot.queues.get(queue, QueueState())
    return show_list(
        visit,
        READY,
        title=_("Queue %s") % printable(queue),
        tab="queues",
        fixed={"queue": queue},
        state=state,
        paused_by=printable(state.paused.by) if state.paused else "",
        known=queue in visit.snapshot.queues,
        crumb=_("Queues"),
        crumb_url=visit.url("queues"),
    )
