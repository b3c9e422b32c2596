"""Detail: one job in any state, also one that is gone: what it is, what became of it, and who did what to it."""

from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.utils.http import urlencode
from django.utils.translation import gettext as _

from django_delayq.admin import audit_log
from django_delayq.admin.arguments import DisplayedArguments
from django_delayq.admin.context import PageContext
from django_delayq.admin.filters import Filter, from_url_name, read_cursor
from django_delayq.admin.job_detail import JobDetail
from django_delayq.admin.job_lists import DEAD, JOB_LISTS, PENDING, READY
from django_delayq.job.ids import created_us, from_text
from django_delayq.job.job import DEFAULT_QUEUE
from django_delayq.store.queries.lookup import Found


def show(visit: PageContext, text_id: str) -> HttpResponse:
    """Draw the job; a POST asks to see what is hidden, which is written down."""
    place, reveal = from_text(text_id), visit.request.method == "POST"
    if reveal and not visit.may_reveal:
        raise PermissionDenied
    found = _find(visit, *place) if place else None
    if found is None or found.ended:
        return visit.render(
            "gone.html",
            tab="",
            title=_("Ended task") if found and found.result else _("No such task"),
            status=200 if found and found.result else 404,
            id=text_id if place else "",
            created_us=created_us(place[0]) if place else None,
            kept=found.result if found else None,
            payload=DisplayedArguments.of(found.job, visit.config.redact) if found and found.job else None,
            entries=audit_log.for_job(text_id) if place else [],
        )
    if reveal:
        audit_log.record(visit.request, "reveal", _("Saw what is hidden"), job_ids=[text_id])
    query = visit.request.GET
    sheet = JobDetail(visit, found, reveal=reveal, whole="all" in query)
    here = visit.url("task_detail", text_id)
    return visit.render(
        "task_detail.html",
        tab="queues" if sheet.place is READY else sheet.place.name,
        title=_("%(function)s %(id)s") % {"function": sheet.line.function, "id": sheet.line.short_id},
        sheet=sheet,
        entries=audit_log.for_job(text_id),
        here=f"{here}?{query.urlencode()}" if query else here,
        all_url=f"{here}?{urlencode({**query.dict(), 'all': 'yes'})}",
        **_way_back(visit, sheet),
    )


def _find(visit: PageContext, raw_id: bytes, shard: int) -> Found | None:
    if shard >= visit.store.config.shards:
        return None
    # What the link says of where it was saves a round trip where it still is there.
    query = visit.request.GET
    try:
        queue, cursor = from_url_name(query.get("in", "")), read_cursor(query.get("row", ""))
    except ValueError:
        queue, cursor = "", None
    member = cursor[1] if cursor and cursor[1].startswith(raw_id) else b""
    return visit.store.lookup(shard).find(raw_id, queue=queue or DEFAULT_QUEUE, member=member[:14], with_lease=True)


def _way_back(visit: PageContext, sheet: JobDetail) -> dict[str, Any]:
    """Return the list this page was reached from, by default the one the job is in, and its neighbours there."""
    query, row = visit.request.GET, sheet.line.row
    place = JOB_LISTS.get(query.get("list", ""), sheet.place)
    asked = Filter.read(query)
    if place is READY:
        asked = Filter(queue=asked.queue or row.queue)
    try:
        cursor = read_cursor(query.get("row", ""))
    except ValueError:
        # The score is known of these two without it.
        cursor = (row.score, sheet.job.member if place is PENDING else row.raw_id) if sheet.job else None
        cursor = cursor if place is sheet.place and place in (PENDING, DEAD) else None
    back = {"crumb": place.title, "crumb_url": place.address(visit, asked.queue, asked.page())}
    if cursor is None:
        return back
    return {
        **back,
        "previous_url": place.address(visit, asked.queue, asked.page(cursor, before=True) + "&open=yes"),
        "next_url": place.address(visit, asked.queue, asked.page(cursor) + "&open=yes"),
    }
