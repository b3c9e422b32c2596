"""Detail: one job in any state, also one that is gone: what it is, what became of it, and who did what to it."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_delayq.admin import audit_log
from django_delayq.admin.actions.bulk_actions import BULK_ACTIONS, BulkAction
from django_delayq.admin.arguments import DOTS, FULL, DisplayedArguments, printable
from django_delayq.admin.errors import ErrorSummary
from django_delayq.admin.filters import Filter, from_url_name, read_cursor
from django_delayq.admin.job_lists import DEAD, JOB_LISTS, PENDING, READY
from django_delayq.admin.job_rows import JobLine
from django_delayq.admin.page import PageContext
from django_delayq.job.ids import created_us, from_text
from django_delayq.job.job import DEFAULT_QUEUE, Job, State
from django_delayq.store.queries.lookup import Found
from django_delayq.task import registry

_STATES = {
    State.SCHEDULED: (gettext_lazy("Pending"), "", gettext_lazy("Due")),
    State.READY: (gettext_lazy("Ready"), "", gettext_lazy("Was due")),
    State.CLAIMED: (gettext_lazy("Running"), "good", gettext_lazy("Was due")),
    State.DEAD: (gettext_lazy("Dead"), "bad", gettext_lazy("Died")),
}
_PLACES = {place.state: place for place in JOB_LISTS.values()}
#: Bytes shown of a body that cannot be read.
_HEX = 4 * 1024


class Attempt(NamedTuple):
    """One ended attempt."""

    number: int
    started_us: int | None
    #: µs from when it was due to its start, where that is known.
    lag_us: int | None
    #: µs it took, where somebody saw it end.
    took_us: int | None
    worker: str
    error_summary: ErrorSummary


class JobDetail:
    """One job in words."""

    def __init__(self, visit: PageContext, found: Found, *, reveal: bool, whole: bool) -> None:
        self._visit, self.found = visit, found
        self.reveals, self._whole = reveal, whole
        self.place = _PLACES[found.state]
        self.state, self.css_class, self.moment_label = _STATES[found.state]
        if found.lease_end_us is not None and found.lease_end_us <= visit.now_us:
            self.state, self.css_class = gettext_lazy("Lost"), "bad"
        self.line = JobLine.of(found, visit.config.redact)
        self.token = f"{self.line.id}.{found.moment_us}"
        self.is_known = registry.find(self.line.row.task) is not None

    @property
    def job(self) -> Job | None:
        """The job, where its body can be read."""
        return self.line.row.job

    @property
    def worker(self) -> str:
        """Who runs it."""
        return printable(self.found.worker)

    @property
    def size(self) -> int:
        """Bytes of its body."""
        return self.line.row.size

    @cached_property
    def payload(self) -> DisplayedArguments | None:
        """The arguments, where they can be read."""
        return DisplayedArguments.of(self.job, self._visit.config.redact, reveal=self.reveals) if self.job else None

    @cached_property
    def arguments(self) -> tuple[list[Any], bool]:
        """The arguments one by one, and whether they were cut."""
        return self.payload.arguments(None if self._whole else FULL) if self.payload else ([], False)

    @property
    def is_redacted(self) -> bool:
        """Whether something is hidden: a value, or bytes that nobody can read."""
        return not self.reveals and (self.payload is None or self.payload.hidden or self.key == DOTS)

    @property
    def bytes(self) -> str:
        """The beginning of a body that cannot be read."""
        return "" if self.job or not self.reveals else (self.found.stored or b"")[:_HEX].hex(" ", 4)

    @property
    def key(self) -> str:
        """What the job is unique by; made of its arguments, often, and so hidden as they are."""
        if self.job is None or self.job.key is None:
            return ""
        hidden = not self.reveals and (not self.is_known or (self.payload is not None and self.payload.hidden))
        return DOTS if hidden else printable(self.job.key)

    @property
    def attempts(self) -> Iterator[Attempt]:
        """The ended attempts that are told of, oldest first."""
        history = self.found.attempts.history
        first = max(0, self.found.attempts.ended - len(history)) + 1
        for number, entry in enumerate(history, first):
            started_us, ended_us = entry.get("started_us"), entry.get("ended_us")
            took_us = ended_us - started_us if started_us is not None and ended_us is not None else None
            due_us = entry.get("due_us")
            lag_us = max(0, started_us - due_us) if started_us and due_us else None
            yield Attempt(
                number, started_us, lag_us, took_us, printable(entry.get("worker", "")), ErrorSummary.read(**entry)
            )

    @property
    def traceback(self) -> str:
        """What is kept of the last error."""
        return printable(self.found.attempts.last_error, lines=True)

    @property
    def frames(self) -> int:
        """How many calls deep it is."""
        return f"\n{self.traceback}".count('\n  File "')

    @property
    def actions(self) -> list[BulkAction]:
        """What this person may do to it."""
        if not self._visit.may_manage:
            return []
        return [deed for deed in BULK_ACTIONS.values() if self.place.name in deed.job_lists and self._suits(deed)]

    def _suits(self, deed: BulkAction) -> bool:
        if deed.name == "edit":
            return self.job is not None and (self._visit.may_reveal or not self.is_redacted)
        return deed.name != "purge"


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


#: State -> what it is called on screen, how that looks, and what its moment is.
