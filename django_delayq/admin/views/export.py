"""Export of a filtered list as NDJSON or CSV, streamed while the list is read.

NDJSON has all that the list knows, with the traceback of each attempt if the address asks for `history=all`. CSV is for
spreadsheets: it has no tracebacks, and no cell that a spreadsheet would run.
"""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import StringIO
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponseBase, StreamingHttpResponse
from django.utils.translation import gettext as _

from django_delayq.admin import audit_log
from django_delayq.admin.errors import ErrorSummary
from django_delayq.admin.lists.filters import Filter
from django_delayq.admin.lists.job_lists import JOB_LISTS, READY, JobList, iter_batches
from django_delayq.admin.page import PageContext
from django_delayq.admin.views.lists import filter_of
from django_delayq.clock import moment
from django_delayq.display.arguments import DisplayedArguments
from django_delayq.display.text import printable
from django_delayq.exceptions import StoreError
from django_delayq.job.ids import created_us
from django_delayq.store.queries.job_pages import JobRow

_COLUMNS = (
    *("id", "state", "task", "queue", "priority", "created", "due", "failed", "attempts", "error", "message"),
    *("args", "kwargs", "snoozes", "interruptions", "waiting_for", "unreadable"),
)
#: Columns whose values can only be numbers, times, or words of this package.
_PLAIN = frozenset(("id", "state", "priority", "created", "due", "failed", "attempts", "snoozes", "interruptions"))
#: A hundred thousand rows pass: `json.dumps` with an option makes an encoder at each call.
_encode, _encode_any_letter = json.JSONEncoder().encode, json.JSONEncoder(ensure_ascii=False).encode
#: A text that begins so is a formula for a spreadsheet, which may open addresses and run programs.
_FORMULA = tuple("=+-@\t\r\n＝＋－＠")
#: Makes Excel read a file as UTF-8.
_BYTE_ORDER_MARK = "\ufeff"


def show(page: PageContext, list_name: str) -> HttpResponseBase:
    """Send the matching rows. A POST includes hidden values, needs the permission, and is recorded in the audit log."""
    job_list, job_filter = JOB_LISTS.get(list_name), filter_of(page)
    if job_list is None or (job_list is READY and not job_filter.queue):
        raise Http404
    query, reveal = page.request.GET, page.request.method == "POST"
    if reveal and not page.may_reveal:
        raise PermissionDenied
    # Reads the snapshot: if Redis fails, it fails here, while an error page is still possible.
    job_filter = job_filter.with_absolute_times(page.now_us, ahead=job_list.ahead)
    if reveal:
        source = f"{list_name}?{job_filter.page()}"
        audit_log.record(
            page.request, "export", lambda: _("Exported with hidden values: %s") % source, object_id=source
        )
    as_csv = query.get("format") == "csv"
    kind, content_type = ("csv", "text/csv; charset=utf-8") if as_csv else ("ndjson", "application/x-ndjson")
    name = f"{list_name}-{moment(page.now_us):%Y%m%dT%H%M%SZ}.{kind}"
    errors = "none" if as_csv else "history" if query.get("history") == "all" else "traceback"

    def describe(row: JobRow) -> dict[str, Any]:
        return _object(page, row, reveal=reveal, errors=errors)

    batches = _batches(page, job_list, job_filter, describe)
    return StreamingHttpResponse(
        _as_csv(batches) if as_csv else _as_ndjson(batches),
        content_type=content_type,
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


def _as_ndjson(batches: Iterable[Sequence[dict[str, Any]]]) -> Iterator[str]:
    for batch in batches:
        # One piece a batch: the server sends each piece by itself.
        yield "".join([_encode(each) + "\n" for each in batch])


def _as_csv(batches: Iterable[Sequence[dict[str, Any]]]) -> Iterator[str]:
    yield f"{_BYTE_ORDER_MARK}{','.join(_COLUMNS)}\r\n"
    for batch in batches:
        text = StringIO()
        writer = csv.writer(text)
        for each in batch:
            if "incomplete" in each:
                writer.writerow([_cell(f"incomplete: {each['incomplete']}")])
            else:
                value_of = each.get
                writer.writerow([value_of(name) if name in _PLAIN else _cell(value_of(name)) for name in _COLUMNS])
        yield text.getvalue()


def _cell(value: Any) -> Any:
    """Return a value as a cell. A number stays one; a text is one for the spreadsheet, too."""
    if value is None or isinstance(value, int):
        return value
    text = printable(value if isinstance(value, str) else _encode_any_letter(value), lines=True)
    return f"'{text}" if text.startswith(_FORMULA) else text


def _batches(
    page: PageContext, job_list: JobList, job_filter: Filter, describe: Callable[[JobRow], dict[str, Any]]
) -> Iterator[Sequence[dict[str, Any]]]:
    try:
        for _shard, batch in iter_batches(page, job_list, job_filter):
            yield [describe(row) for row in batch.rows]
        if page.missing:
            yield [{"incomplete": text} for text in page.missing]
    except StoreError as error:
        # Too late for another status: the last line of the file says that it is incomplete.
        yield [{"incomplete": str(error)}]


def _object(page: PageContext, row: JobRow, *, reveal: bool, errors: str) -> dict[str, Any]:
    job, head, due_us = row.job, row.head, row.due_us
    shown = DisplayedArguments.of(job, page.config.redact, reveal=reveal) if job else None
    attempts = row.attempts if errors == "history" else row.last_attempt
    error, message = ErrorSummary.of(attempts) if attempts.history else ("", "")
    found: dict[str, Any] = {
        "id": row.id,
        # The encoder would look up the value of the enum.
        "state": row.state.value,
        "task": head.task,
        "queue": row.found_in or head.queue,
        "priority": head.priority,
        "args": shown and shown.args,
        "kwargs": shown and shown.kwargs,
        "unreadable": row.fault or None,
        "created": moment(created_us(row.raw_id)).isoformat(),
        "failed" if due_us is None else "due": moment(row.moment_us if due_us is None else due_us).isoformat(),
        "attempts": attempts.ended,
        "snoozes": attempts.snoozes,
        "interruptions": attempts.interruptions,
        "waiting_for": attempts.waiting_for or None,
        "error": error or None,
        "message": message or None,
    }
    if errors != "none":
        found[errors] = attempts.history if errors == "history" else attempts.last_error or None
    return found
