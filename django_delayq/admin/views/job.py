"""The page of one job, in any state or gone: its properties, its attempts, and the audit log about it."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext_lazy

from django_delayq.admin import audit_log
from django_delayq.admin.actions.bulk_actions import BULK_ACTIONS, BulkAction
from django_delayq.admin.charts import timeline
from django_delayq.admin.errors import ErrorSummary
from django_delayq.admin.lists.filters import Filter, from_url_name, read_position
from django_delayq.admin.lists.job_lists import FAILED, JOB_LISTS, READY, SCHEDULED
from django_delayq.admin.lists.job_rows import JobLine
from django_delayq.admin.page import PageContext
from django_delayq.admin.views.finished import EndingLine, line_of
from django_delayq.display.arguments import DisplayedArguments
from django_delayq.display.job_contents import JobContents
from django_delayq.display.text import printable
from django_delayq.job.ids import created_us, from_text, to_text
from django_delayq.job.job import DEFAULT_QUEUE, State
from django_delayq.store.digests import schedule_id
from django_delayq.store.queries.job_pages import JobRow
from django_delayq.task import registry

_STATES = {
    State.SCHEDULED: (pgettext_lazy("of a job", "Scheduled"), "", gettext_lazy("Due")),
    State.READY: (pgettext_lazy("of a job", "Ready"), "", gettext_lazy("Was due")),
    State.CLAIMED: (pgettext_lazy("of a job", "Running"), "good", gettext_lazy("Was due")),
    State.DEAD: (pgettext_lazy("of a job", "Failed"), "bad", pgettext_lazy("moment", "Failed")),
}
_LIST_OF_STATE = {job_list.state: job_list for job_list in JOB_LISTS.values()}
#: Bytes shown of a body that cannot be read.
_MAX_HEX = 4 * 1024


class Attempt(NamedTuple):
    """One attempt that ended."""

    number: int
    started_us: int | None
    #: µs from its due time to its start; None if unknown.
    lag_us: int | None
    #: µs from its start to its end; None if nobody saw the end.
    took_us: int | None
    worker: str
    error_summary: ErrorSummary


class JobDetail(JobContents):
    """One job as its page shows it."""

    def __init__(self, page: PageContext, row: JobRow, *, reveal: bool, whole: bool) -> None:
        super().__init__(row.job, page.config.redact, reveal=reveal, whole=whole)
        self._page = page
        self.job_list = _LIST_OF_STATE[row.state]
        self.state, self.css_class, self.moment_label = _STATES[row.state]
        if row.stops:
            self.state, self.css_class = gettext_lazy("Stopping"), "warn"
        if row.lease_end_us is not None and row.lease_end_us <= page.now_us:
            self.state, self.css_class = gettext_lazy("Lost"), "bad"
        self.line = JobLine(row, page.config.redact, now_us=page.now_us, limits=page.store.config.tasks.limits)
        self.is_known = registry.find(row.task) is not None

    @property
    def schedule_name(self) -> str:
        """The name of its recurring schedule; empty if it has none."""
        return printable(self.job.occurrence.schedule) if self.job and self.job.occurrence else ""

    @property
    def schedule_url(self) -> str:
        """The address of that schedule, which may be deleted."""
        if self.job is None or self.job.occurrence is None:
            return ""
        id = schedule_id(self.job.task, self.job.occurrence.schedule)
        return self._page.url("recurring_schedule", to_text(id, self.job.shard))

    @property
    def bytes(self) -> str:
        """The beginning of an unreadable body, in hexadecimal."""
        return "" if self.job or not self.reveals else (self.line.row.stored or b"")[:_MAX_HEX].hex(" ", 4)

    @property
    def attempts(self) -> Iterator[Attempt]:
        """The recorded attempts, oldest first."""
        attempts = self.line.row.attempts
        first = max(0, attempts.ended - len(attempts.history)) + 1
        for number, entry in enumerate(attempts.history, first):
            started_us, ended_us = entry.get("started_us"), entry.get("ended_us")
            took_us = ended_us - started_us if started_us is not None and ended_us is not None else None
            due_us = entry.get("due_us")
            lag_us = max(0, started_us - due_us) if started_us and due_us else None
            yield Attempt(
                number, started_us, lag_us, took_us, printable(entry.get("worker", "")), ErrorSummary.read(**entry)
            )

    @property
    def timeline(self) -> timeline.Timeline | None:
        """When it waited and ran."""
        return timeline.of_job(self.line.row, self._page.now_us)

    @property
    def traceback(self) -> str:
        """The stored text of the last error."""
        return printable(self.line.row.attempts.last_error, lines=True)

    @property
    def frames(self) -> int:
        """Number of frames in the traceback."""
        return f"\n{self.traceback}".count('\n  File "')

    @property
    def actions(self) -> list[BulkAction]:
        """The actions that this person may take."""
        if not self._page.may_manage:
            return []
        editable = self.job is not None and (self._page.may_reveal or not self.is_redacted)
        return [
            action
            for action in BULK_ACTIONS.values()
            if self.job_list.name in action.job_lists and (action.in_menu or (action.name == "edit" and editable))
        ]


def show(page: PageContext, text_id: str) -> HttpResponse:
    """Show the job. A POST reveals hidden values and is recorded in the audit log."""
    parsed_id, reveal = from_text(text_id), page.request.method == "POST"
    if reveal and not page.may_reveal:
        raise PermissionDenied
    found = _find(page, *parsed_id) if parsed_id else None
    if found is None or found.ended:
        ended = _find_ending(page, parsed_id[0]) if parsed_id else None
        is_known = ended is not None or bool(found and found.result)
        return page.render(
            "job_gone.html",
            tab="",
            title=_("Ended job") if is_known else _("No such job"),
            status=200 if is_known else 404,
            id=text_id if parsed_id else "",
            created_us=created_us(parsed_id[0]) if parsed_id else None,
            result=found.result if found else None,
            ended=ended,
            timeline=timeline.of_ending(ended.ending) if ended else None,
            displayed=DisplayedArguments.of(found.job, page.config.redact) if found and found.job else None,
            log_entries=audit_log.for_job(text_id) if parsed_id else [],
        )
    if reveal:
        audit_log.record(page.request, "reveal", lambda: _("Revealed hidden values"), job_ids=[text_id])
    query = page.request.GET
    detail = JobDetail(page, found, reveal=reveal, whole="all" in query)
    own_url = page.url("job_detail", text_id)
    return page.render(
        "job_detail.html",
        tab="queues" if detail.job_list is READY else detail.job_list.name,
        title=_("%(task)s %(id)s") % {"task": detail.line.task_name, "id": detail.line.short_id},
        detail=detail,
        log_entries=audit_log.for_job(text_id),
        own_url=f"{own_url}?{query.urlencode()}" if query else own_url,
        # With one shard there is nothing to say.
        shard=found.shard if page.store.shard_count > 1 else None,
        all_url=f"{own_url}?{urlencode({**query.dict(), 'all': 'yes'})}",
        **_list_links(page, detail),
    )


def _find(page: PageContext, raw_id: bytes, shard: int) -> JobRow | None:
    if not page.store.has_shard(shard):
        return None
    # The link names the job's queue and position. They save a round trip if the job is still there.
    query = page.request.GET
    try:
        queue = from_url_name(query.get("in", ""))
    except ValueError:
        queue = ""
    cursor = read_position(query.get("row", ""), raw_id)
    member = cursor[1][:14] if cursor else b""
    return page.store.find(raw_id, shard, queue=queue or DEFAULT_QUEUE, member=member, with_lease=True)


def _find_ending(page: PageContext, raw_id: bytes) -> EndingLine | None:
    """Return how a job that is gone ended, if it is among the last that did."""
    found = (each for each in page.store.endings(reads=page.reads) if each.raw_id == raw_id)
    return next((line_of(page, each) for each in found), None)


def _list_links(page: PageContext, detail: JobDetail) -> dict[str, Any]:
    """Return links to the list that this page was reached from, by default the job's own, and to the neighbours."""
    query, row = page.request.GET, detail.line.row
    job_list = JOB_LISTS.get(query.get("list", ""), detail.job_list)
    job_filter = Filter.read(query)
    if job_list is READY:
        job_filter = Filter(queue=job_filter.queue or row.queue)
    links = {"crumb": job_list.title, "crumb_url": job_list.address(page, job_filter.queue, job_filter.page())}
    cursor = read_position(query.get("row", ""), row.raw_id)
    if cursor is None:
        # The link has no position in the list. Only in these two lists does the job itself show its position.
        if job_list is not detail.job_list or job_list not in (SCHEDULED, FAILED) or not detail.job:
            return links
        cursor = row.cursor
    previous, following = job_filter.page(cursor, before=True), job_filter.page(cursor)
    return {
        **links,
        "previous_url": job_list.address(page, job_filter.queue, f"{previous}&open=yes"),
        "next_url": job_list.address(page, job_filter.queue, f"{following}&open=yes"),
    }
