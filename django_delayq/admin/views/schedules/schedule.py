"""The page of one recurring schedule: its rule, its next jobs, what became of the last ones, and the audit log."""

from datetime import tzinfo
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_delayq.admin import audit_log
from django_delayq.admin.actions.messages import moment_text
from django_delayq.admin.actions.schedules import SCHEDULE_ACTIONS, refusal
from django_delayq.admin.lists.filters import url_name
from django_delayq.admin.page import PageContext
from django_delayq.admin.views.schedules.rows import ScheduleRow
from django_delayq.display.job_contents import JobContents
from django_delayq.display.schedules import CATCH_UPS, OVERLAPS
from django_delayq.display.text import printable, span_text
from django_delayq.store.schedules.stored_schedule import StoredSchedule, from_text_id
from django_delayq.task import registry
from django_delayq.templatetags.delayq import grouped


class ScheduleDetail(JobContents):
    """One schedule as its page shows it, with the contents of its jobs."""

    def __init__(self, page: PageContext, stored: StoredSchedule, *, reveal: bool, whole: bool) -> None:
        job = stored.definition.job if stored.definition else None
        super().__init__(job, page.config.redact, reveal=reveal, whole=whole)
        self._page, self.stored = page, stored
        self.row = ScheduleRow.of(page, stored)
        self.is_known = job is not None and registry.find(job.task) is not None

    @property
    def is_redacted(self) -> bool:
        """Whether anything is hidden that this process can read."""
        return self.job is not None and super().is_redacted

    @property
    def bytes(self) -> str:
        """Nothing: what cannot be read is not shown."""
        return ""

    @property
    def task_in_query(self) -> str:
        """The name of its task in URLs."""
        return url_name(self.job.task) if self.job else ""

    @property
    def queue(self) -> str:
        """The queue of its jobs."""
        return printable(self.job.queue) if self.job else ""

    @property
    def properties(self) -> list[tuple[str, str]]:
        """The options of the schedule beside its rule: (name, text)."""
        schedule, zone = self.row.schedule, self._page.timezone
        if schedule is None:
            return []
        return [
            (_("Jitter"), span_text(schedule.jitter_us) if schedule.jitter_us else ""),
            (_("Overlap"), str(OVERLAPS[schedule.overlap])),
            (_("Catch up"), str(CATCH_UPS[schedule.catch_up])),
            (_("Window"), "" if schedule.window_us is None else span_text(schedule.window_us)),
            (_("Start"), _moment(schedule.start_us, zone)),
            (_("End"), _moment(schedule.end_us, zone)),
            (_("Pauses after"), _failures(schedule.pause_after)),
        ]

    @property
    def actions(self) -> list[tuple[str, Any, bool]]:
        """The actions that this person may take: (name, label, whether it destroys something)."""
        if not self._page.may_manage:
            return []
        return [
            (name, action.label, action.destructive)
            for name, action in SCHEDULE_ACTIONS.items()
            if not refusal(action, self.stored)
        ]


def show(page: PageContext, text_id: str) -> HttpResponse:
    """Show the schedule; two round trips. A POST reveals hidden values and is recorded in the audit log."""
    reveal = page.request.method == "POST"
    if reveal and not page.may_reveal:
        raise PermissionDenied
    stored = page.store.find_schedule(text_id)
    # Other texts are ids of jobs and queues, whose entries have their own pages.
    entries = audit_log.about(text_id)[: audit_log.SHOWN] if from_text_id(text_id) else []
    if stored is None:
        title = _("No such recurring schedule")
        return page.render(
            "schedule_gone.html",
            tab="recurring",
            title=title,
            status=404,
            log_entries=entries,
            crumb=_("Recurring schedules"),
            crumb_url=page.url("recurring"),
        )
    if reveal:
        audit_log.record(page.request, "reveal", lambda: _("Revealed hidden values"), object_id=text_id)
    detail = ScheduleDetail(page, stored, reveal=reveal, whole="all" in page.request.GET)
    own_url = page.url("recurring_schedule", text_id)
    return page.render(
        "schedule.html",
        tab="recurring",
        title=_("%(task)s: %(name)s") % {"task": detail.row.task_name, "name": detail.row.label}
        if detail.job
        else detail.row.label,
        detail=detail,
        log_entries=entries,
        own_url=own_url,
        all_url=f"{own_url}?all=yes",
        crumb=_("Recurring schedules"),
        crumb_url=page.url("recurring"),
    )


def _failures(number: int | None) -> str:
    return ngettext("%s failure", "%s failures in a row", number) % grouped(number) if number else ""


def _moment(us: int | None, zone: tzinfo) -> str:
    return "" if us is None else moment_text(us, zone)
