"""The four lists of jobs: filter, rows, pager, and the actions on offer."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.utils import timezone
from django.utils.translation import gettext as _

from django_delayq.admin import job_lists
from django_delayq.admin.actions.bulk_actions import BULK_ACTIONS
from django_delayq.admin.errors import ErrorSummary
from django_delayq.admin.filters import SIZES, Filter, url_name, write_cursor
from django_delayq.admin.job_lists import READY, RUNNING, SCHEDULED, JobList, JobListPage
from django_delayq.admin.job_rows import JobLine
from django_delayq.admin.page import PageContext
from django_delayq.display.text import printable
from django_delayq.job.ids import from_text
from django_delayq.store.queries.job_pages import JobRow
from django_delayq.store.queries.snapshot import QueueState
from django_delayq.task import registry
from django_delayq.templatetags.delayq import zoned

#: Longest name among the suggestions of a text field.
_MAX_NAME = 200


def show_scheduled(page: PageContext) -> HttpResponse:
    """Show the scheduled jobs."""
    spans = {
        "overdue": _("overdue"),
        "15m": _("next 15 min"),
        "1h": _("next hour"),
        "24h": _("next 24 h"),
        "7d": _("next 7 days"),
    }
    return show_list(page, SCHEDULED, title=_("Scheduled jobs"), spans=spans, span_label=_("Due"))


def show_running(page: PageContext) -> HttpResponse:
    """Show the claimed jobs."""
    return show_list(page, RUNNING, title=_("Running jobs"))


def show_ready(page: PageContext, queue: str) -> HttpResponse:
    """Show the ready jobs of a queue; it may have none yet."""
    state, options = page.snapshot.queues.get(queue, QueueState()), page.store.config.tasks.options_of(queue)
    has_tenants = options.fair or options.max_waiting is not None
    return show_list(
        page,
        READY,
        title=_("Queue %s") % printable(queue),
        tab="queues",
        queue=queue,
        state=state,
        paused_by=printable(state.paused.by) if state.paused else "",
        known=queue in page.snapshot.queues,
        tenants_url=page.url("queue_tenants", queue) if has_tenants else "",
        crumb=_("Queues"),
        crumb_url=page.url("queues"),
    )


def show_list(
    page: PageContext, job_list: JobList, *, title: str, tab: str = "", queue: str = "", **more: Any
) -> HttpResponse:
    """Show a list; redirect to a job if the filter is its id, or if the address asks for a row's neighbour."""
    job_filter = filter_of(page)
    if queue:
        job_filter = replace(job_filter, queue=queue)
    if from_text(job_filter.text):
        return HttpResponseRedirect(page.url("job_detail", job_filter.text))
    if "open" in page.request.GET:
        return _redirect_to_neighbour(page, job_list, job_filter)
    listing = job_lists.read(page, job_list, job_filter)
    return page.render(
        f"{job_list.name}.html",
        tab=tab or job_list.name,
        title=title,
        **list_context(page, job_list, job_filter, listing),
        **more,
    )


def filter_of(page: PageContext) -> Filter:
    """Return the filter in the address; its times are in the zone of the page."""
    with timezone.override(page.timezone):
        return Filter.read(page.request.GET)


def list_context(page: PageContext, job_list: JobList, job_filter: Filter, listing: JobListPage) -> dict[str, Any]:
    """Return the context that all lists need."""

    def address(query: str) -> str:
        return job_list.address(page, job_filter.queue, query)

    next_cursor, previous_cursor = listing.next_cursor, listing.previous_cursor
    shown_rows = listing.rows or listing.matched
    # The address of one queue's page names the queue in its path.
    in_query = replace(job_filter, queue="") if job_list is READY else job_filter
    actions = [action for action in BULK_ACTIONS.values() if action.in_menu and job_list.name in action.job_lists]
    return {
        "job_list": job_list,
        "filter": job_filter,
        "listing": listing,
        "lines": [
            JobLine(
                row,
                page.config.redact,
                url=detail_url(page, job_list, job_filter, row),
                now_us=page.now_us,
                limits=page.store.config.tasks.limits,
            )
            for row in listing.rows
        ],
        "actions": actions if page.may_manage else [],
        "list_url": address(""),
        "first_url": address(in_query.page()),
        "last_url": address(in_query.page(before=True)),
        "next_url": address(in_query.page(next_cursor)) if next_cursor else "",
        "previous_url": address(in_query.page(previous_cursor, before=True)) if previous_cursor else "",
        "clear_url": address(Filter(count=job_filter.count, reversed=job_filter.reversed).query()),
        "reverse_label": job_list.sort_labels[job_filter.reversed],
        "reverse_url": address(replace(in_query, reversed=not job_filter.reversed).page()),
        "export_url": "?".join(filter(None, (page.url("export", job_list.name), job_filter.page()))),
        "reached_us": next_cursor[0] if listing.scanned is not None and next_cursor and job_list.timed else None,
        "filtered": in_query.is_set or in_query.cursor is not None,
        "found": len(listing.rows) + len(listing.matched),
        "sizes": SIZES,
        "queues": _queue_choices(page.snapshot.queues, job_filter.queue),
        "task_names": _suggestions(
            {name: printable(name) for name in (*registry.names(), *(row.task for row in shown_rows))}
        ),
        "error_names": _suggestions(
            {summary.error: summary.name for summary in (ErrorSummary.of(row.attempts) for row in shown_rows)}
        ),
        "task_text": url_name(job_filter.task) if job_filter.task else "",
        "error_text": url_name(job_filter.error) if job_filter.error else "",
        "queue_text": url_name(job_filter.queue) if job_filter.queue else "",
        # As text: a template groups the digits of numbers.
        "jump_fields": [
            (name, str(value)) for name, value in in_query.pairs(cursor=None, before=False, at_us=None).items()
        ],
        "filter_query": job_filter.page(),
        "queue_query": Filter(queue=job_filter.queue).query(),
        "page_query": in_query.query(),
        "from_text": _input_text(page, job_filter.from_us),
        "to_text": _input_text(page, job_filter.to_us),
        "at_text": _input_text(page, job_filter.at_us),
        "zone": str(page.timezone),
    }


def detail_url(page: PageContext, job_list: JobList, job_filter: Filter, row: JobRow) -> str:
    """Return the address of a job's own page, with the list to go back to and the row's position in it."""
    position = {"list": job_list.name, "in": url_name(row.queue), "row": write_cursor(row.cursor)}
    return page.url("job_detail", row.id, **position, **job_filter.pairs(cursor=None, before=False, at_us=None))


def _redirect_to_neighbour(page: PageContext, job_list: JobList, job_filter: Filter) -> HttpResponse:
    listing = job_lists.read(page, job_list, replace(job_filter, count=1))
    if listing.rows:
        job_filter = replace(job_filter, cursor=None, before=False)
        return HttpResponseRedirect(detail_url(page, job_list, job_filter, listing.rows[0]))
    messages.info(page.request, _("There is no further job in that direction."))
    return HttpResponseRedirect(job_list.address(page, job_filter.queue, job_filter.page()))


def _queue_choices(names: Iterable[str], chosen: str) -> list[tuple[str, str, bool]]:
    """Return (value, label, whether chosen) for each queue."""
    return [(url_name(name), printable(name), name == chosen) for name in sorted({*names, chosen} - {""})]


def _suggestions(names: dict[str, str]) -> dict[str, str]:
    """Return value -> label for the suggestions of a text field."""
    return {url_name(name): label for name, label in sorted(names.items()) if 0 < len(name) <= _MAX_NAME}


def _input_text(page: PageContext, us: int | None) -> str:
    """Return a moment as the value of a datetime-local input."""
    return "" if us is None else zoned(us, page.timezone).replace(tzinfo=None).isoformat(timespec="seconds")
