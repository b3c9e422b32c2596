"""Export: a whole list as it is filtered, a JSON object a line, sent while it is read."""

import json
from collections.abc import Iterator
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponseBase, StreamingHttpResponse
from django.utils import timezone
from django.utils.translation import gettext as _

from django_delayq.admin import audit_log
from django_delayq.admin.arguments import DisplayedArguments
from django_delayq.admin.filters import Filter
from django_delayq.admin.job_lists import JOB_LISTS, READY, JobList, iter_pages
from django_delayq.admin.page import PageContext
from django_delayq.clock import moment
from django_delayq.exceptions import StoreError
from django_delayq.job.ids import created_us
from django_delayq.store.queries.job_pages import JobRow


def show(visit: PageContext, place: str) -> HttpResponseBase:
    """Send the rows that match; posted to, with what is hidden, to whom may see it, and that is written down."""
    there = JOB_LISTS.get(place)
    with timezone.override(visit.timezone):
        asked = Filter.read(visit.request.GET)
    if there is None or (there is READY and not asked.queue):
        raise Http404
    reveal = visit.request.method == "POST"
    if reveal and not visit.may_reveal:
        raise PermissionDenied
    # Redis fails here, while there still is a page to say so.
    asked = asked.with_absolute_times(visit.now_us, ahead=there.ahead)
    if reveal:
        what = f"{place}?{asked.page()}"
        audit_log.record(visit.request, "export", _("Exported with what is hidden: %s") % what, object_id=what)
    name = f"{place}-{moment(visit.now_us):%Y%m%dT%H%M%SZ}.ndjson"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    rows = _rows(visit, there, asked)
    return StreamingHttpResponse(
        (_line(visit, row, reveal=reveal) for row in rows), content_type="application/x-ndjson", headers=headers
    )


def _rows(visit: PageContext, place: JobList, asked: Filter) -> Iterator[JobRow | StoreError]:
    match = asked.match(visit.config.redact, by_queue=not place.by_queue)
    try:
        for _shard, page in iter_pages(visit, place, asked, match=match):
            yield from page.rows
    except StoreError as error:
        yield error


def _line(visit: PageContext, row: JobRow | StoreError, *, reveal: bool) -> str:
    # Too late for another status: the file says itself that it is not whole.
    told = {"incomplete": str(row)} if isinstance(row, StoreError) else _told(visit, row, reveal=reveal)
    return json.dumps(told) + "\n"


def _told(visit: PageContext, row: JobRow, *, reveal: bool) -> dict[str, Any]:
    payload = DisplayedArguments.of(row.job, visit.config.redact, reveal=reveal) if row.job else None
    return {
        "id": row.id,
        "state": row.state,
        "task": row.task,
        "queue": row.queue,
        "priority": row.head.priority,
        "args": payload and payload.args,
        "kwargs": payload and payload.kwargs,
        "unreadable": row.fault or None,
        "created": moment(created_us(row.raw_id)).isoformat(),
        "died" if row.due_us is None else "due": moment(row.moment_us).isoformat(),
        "attempts": row.attempts.ended,
        "history": row.attempts.history,
    }
