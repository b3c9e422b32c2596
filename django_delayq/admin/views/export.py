"""Export of a filtered list as NDJSON, streamed while the list is read."""

import json
from collections.abc import Iterator
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponseBase, StreamingHttpResponse
from django.utils.translation import gettext as _

from django_delayq.admin import audit_log
from django_delayq.admin.filters import Filter
from django_delayq.admin.job_lists import JOB_LISTS, READY, JobList, iter_batches
from django_delayq.admin.page import PageContext
from django_delayq.admin.views.lists import filter_of
from django_delayq.clock import moment
from django_delayq.display.arguments import DisplayedArguments
from django_delayq.exceptions import StoreError
from django_delayq.job.ids import created_us
from django_delayq.store.queries.job_pages import JobRow


def show(page: PageContext, list_name: str) -> HttpResponseBase:
    """Send the matching rows. A POST includes hidden values, needs the permission, and is recorded in the audit log."""
    job_list, job_filter = JOB_LISTS.get(list_name), filter_of(page)
    if job_list is None or (job_list is READY and not job_filter.queue):
        raise Http404
    reveal = page.request.method == "POST"
    if reveal and not page.may_reveal:
        raise PermissionDenied
    # Reads the snapshot: if Redis fails, it fails here, while an error page is still possible.
    job_filter = job_filter.with_absolute_times(page.now_us, ahead=job_list.ahead)
    if reveal:
        source = f"{list_name}?{job_filter.page()}"
        audit_log.record(page.request, "export", _("Exported with hidden values: %s") % source, object_id=source)
    name = f"{list_name}-{moment(page.now_us):%Y%m%dT%H%M%SZ}.ndjson"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    lines = (json.dumps(each) + "\n" for each in _objects(page, job_list, job_filter, reveal=reveal))
    return StreamingHttpResponse(lines, content_type="application/x-ndjson", headers=headers)


def _objects(page: PageContext, job_list: JobList, job_filter: Filter, *, reveal: bool) -> Iterator[dict[str, Any]]:
    try:
        for _shard, batch in iter_batches(page, job_list, job_filter):
            for row in batch.rows:
                yield _object(page, row, reveal=reveal)
        yield from ({"incomplete": text} for text in page.missing)
    except StoreError as error:
        # Too late for another status: the last line of the file says that it is incomplete.
        yield {"incomplete": str(error)}


def _object(page: PageContext, row: JobRow, *, reveal: bool) -> dict[str, Any]:
    shown = DisplayedArguments.of(row.job, page.config.redact, reveal=reveal) if row.job else None
    return {
        "id": row.id,
        "state": row.state,
        "task": row.task,
        "queue": row.queue,
        "priority": row.head.priority,
        "args": shown and shown.args,
        "kwargs": shown and shown.kwargs,
        "unreadable": row.fault or None,
        "created": moment(created_us(row.raw_id)).isoformat(),
        "died" if row.due_us is None else "due": moment(row.moment_us).isoformat(),
        "attempts": row.attempts.ended,
        "snoozes": row.attempts.snoozes,
        "interruptions": row.attempts.interruptions,
        "waiting_for": row.attempts.waiting_for or None,
        "history": row.attempts.history,
    }
