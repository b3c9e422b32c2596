"""The four lists of jobs: filter, rows, pager, and the actions on offer."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote_plus, urlencode

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.utils import timezone
from django.utils.translation import gettext as _

from django_delayq.admin.actions.bulk_actions import BULK_ACTIONS
from django_delayq.admin.charts import history
from django_delayq.admin.lists import job_lists
from django_delayq.admin.lists.filter_chips import chips
from django_delayq.admin.lists.filters import SIZES, Filter, url_name, write_position
from django_delayq.admin.lists.job_lists import FINISHED, READY, RUNNING, SCHEDULED, JobList, JobListPage
from django_delayq.admin.lists.job_rows import JobLine, JobRows
from django_delayq.admin.lists.search_terms import write_terms
from django_delayq.admin.page import PageContext
from django_delayq.display.text import printable
from django_delayq.job.errors.attempt_error import AttemptError
from django_delayq.job.ids import from_text
from django_delayq.metrics import queue_dimension
from django_delayq.store.queries.job_pages import JobRow
from django_delayq.store.queries.snapshot import QueueState
from django_delayq.task import registry
from django_delayq.templatetags.delayq import zoned


def show_scheduled(page: PageContext) -> HttpResponse:
    """Show the scheduled jobs."""
    return show_list(page, SCHEDULED, title=_("Scheduled jobs"))


def show_running(page: PageContext) -> HttpResponse:
    """Show the claimed jobs."""
    return show_list(page, RUNNING, title=_("Running jobs"))


def show_ready(page: PageContext, queue: str) -> HttpResponse:
    """Show the ready jobs of a queue; it may have none yet."""
    dimension, has_charts = queue_dimension(queue), "span" in page.request.GET
    if has_charts:
        history.load(page, dimension)

    def link(span: str) -> str:
        return page.url("queue_detail", queue, span=span or "hour")

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
        # They are as large as the list.
        charts=history.charts(page, dimension, link=link) if has_charts else [],
        charts_url="" if has_charts else link(""),
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
    in_query = _in_query(job_list, job_filter)
    next_url = address(in_query.page(next_cursor)) if next_cursor else ""
    # A search that has not filled its page continues; backwards, it would add rows above those that somebody reads.
    is_unfinished = listing.scanned is not None and len(listing.rows) < job_filter.count and not job_filter.before
    export_url = "?".join(filter(None, (page.url("export", job_list.name), job_filter.page())))
    actions = [action for action in BULK_ACTIONS.values() if action.in_menu and job_list.name in action.job_lists]
    kept = _kept_query(job_filter)
    lines = [
        JobLine(
            row,
            page.config.redact,
            url=f"{job_list.to_jobs}{row.id}/?{_position(job_list, row)}{kept}",
            now_us=page.now_us,
            limits=page.store.config.tasks.limits,
        )
        for row in listing.rows
    ]
    rows = JobRows(
        now_us=page.now_us, timezone=page.timezone, cells=job_list.cells, selectable=page.may_manage and bool(actions)
    )
    return {
        **filter_context(page, job_list, job_filter, listing.rows),
        "listing": listing,
        "lines": lines,
        "rows": rows.html(lines),
        "row_action": BULK_ACTIONS[job_list.row_action] if job_list.row_action and page.may_manage else None,
        "actions": actions if page.may_manage else [],
        "first_url": address(in_query.page()),
        "last_url": address(in_query.page(before=True)),
        "next_url": next_url,
        "searched_next": next_url if is_unfinished else "",
        "previous_url": address(in_query.page(previous_cursor, before=True)) if previous_cursor else "",
        "reverse_label": job_list.sort_labels[job_filter.reversed],
        "reverse_url": address(replace(in_query, reversed=not job_filter.reversed).page()),
        "export_url": export_url,
        "exports": [
            (label, f"{export_url}{'&' if '?' in export_url else '?'}{option}")
            for label, option in (
                (_("CSV"), "format=csv"),
                (_("NDJSON"), "format=ndjson"),
                (_("NDJSON with the traceback of each attempt"), "history=all"),
            )
        ],
        "reached_us": next_cursor[0] if listing.scanned is not None and next_cursor and job_list.timed else None,
        "is_newest_first": job_list.newest_first != job_filter.reversed,
        "found": len(listing.rows),
        "jump_fields": _fields(in_query.plain()),
        "filter_query": job_filter.page(),
        "queue_text": url_name(job_filter.queue) if job_filter.queue else "",
        "queue_query": Filter(queue=job_filter.queue).query(),
        "page_query": in_query.query(),
        "at_text": _input_text(page, job_filter.at_us),
    }


def filter_context(page: PageContext, job_list: JobList, job_filter: Filter, rows: Sequence[JobRow]) -> dict[str, Any]:
    """Return the context of the filter of a list; tasks and errors of these rows are suggested."""
    in_query = _in_query(job_list, job_filter)
    plain, known = in_query.plain(), registry.names()
    names = {("task", row.task) for row in rows if row.task not in known}
    names |= {("error", AttemptError.name_of_last(row.last_attempt)) for row in rows}

    def address(changed: Filter) -> str:
        return job_list.address(page, job_filter.queue, changed.query())

    return {
        "job_list": job_list,
        "filter": job_filter,
        "filtered": in_query.is_set or in_query.cursor is not None,
        "chips": chips(page, job_list, job_filter),
        "search_filter": job_filter.plain().query(),
        "row_terms": write_terms(sorted(names)),
        "finished_url": _finished_url(page, job_list, job_filter),
        "list_url": job_list.address(page, job_filter.queue, ""),
        "clear_url": address(Filter(count=job_filter.count, reversed=job_filter.reversed)),
        "spans": [
            (label, address(replace(plain, within=value, from_us=None, to_us=None)), value == job_filter.within)
            for value, label in job_list.spans.items()
        ],
        "sizes": [(size, address(replace(plain, count=size)), size == job_filter.count) for size in SIZES],
        "time_fields": _fields(replace(plain, within="", from_us=None, to_us=None)),
        "from_text": _input_text(page, job_filter.from_us),
        "to_text": _input_text(page, job_filter.to_us),
        "zone": str(page.timezone),
    }


def _finished_url(page: PageContext, job_list: JobList, job_filter: Filter) -> str:
    """Return the address of the finished jobs that match; empty if *Finished* does not know what the filter names."""
    known = Filter(queue=job_filter.queue, task=job_filter.task, text=job_filter.text)
    if job_list is FINISHED or not known.is_set or not page.store.config.worker.finished_kept:
        return ""
    if job_filter.tenant or job_filter.error or job_filter.error_group:
        return ""
    return FINISHED.address(page, "", known.query())


def _fields(job_filter: Filter) -> list[tuple[str, str]]:
    """Return the fields of a form that adds to a filter."""
    # As text: a template groups the digits of numbers.
    return [(name, str(value)) for name, value in job_filter.pairs().items()]


def _in_query(job_list: JobList, job_filter: Filter) -> Filter:
    """Return the filter for the query string: the address of one queue's page names the queue in its path."""
    return replace(job_filter, queue="") if job_list is READY else job_filter


def job_query(job_list: JobList, job_filter: Filter, row: JobRow) -> str:
    """Return the query of a job's own page: the list to go back to, the row's position in it, and the filter."""
    return _position(job_list, row) + _kept_query(job_filter)


def _position(job_list: JobList, row: JobRow) -> str:
    if job_list is RUNNING:
        # Each heartbeat moves running jobs in their list, so a position soon names no neighbours.
        return f"list={job_list.name}"
    queue = quote_plus(url_name(row.queue), errors="surrogatepass")
    return f"list={job_list.name}&in={queue}&row={write_position(row.cursor)}"


def _kept_query(job_filter: Filter) -> str:
    """Return the rest of that query: the filter of the list."""
    pairs = job_filter.plain().pairs()
    return f"&{urlencode(pairs, errors='surrogatepass')}" if pairs else ""


def _redirect_to_neighbour(page: PageContext, job_list: JobList, job_filter: Filter) -> HttpResponse:
    listing = job_lists.read(page, job_list, replace(job_filter, count=1))
    if listing.rows:
        job_filter = replace(job_filter, cursor=None, before=False)
        found = listing.rows[0]
        return HttpResponseRedirect(f"{page.url('job_detail', found.id)}?{job_query(job_list, job_filter, found)}")
    messages.info(page.request, _("There is no further job in that direction."))
    return HttpResponseRedirect(job_list.address(page, job_filter.queue, job_filter.page()))


def _input_text(page: PageContext, us: int | None) -> str:
    """Return a moment as the value of a datetime-local input."""
    return "" if us is None else zoned(us, page.timezone).replace(tzinfo=None).isoformat(timespec="seconds")
