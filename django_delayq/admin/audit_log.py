"""Audit log: who changed what and who saw hidden values, as rows of the admin's log, log lines and a signal."""

import logging
from collections.abc import Callable, Sequence

from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.db.models import QuerySet
from django.dispatch import Signal
from django.http import HttpRequest
from django.utils import translation
from django.utils.translation import gettext as _

from django_delayq.clock import moment
from django_delayq.display.text import printable
from django_delayq.job.ids import created_us, from_text
from django_delayq.signals import keep_to_one_line, send

logger = logging.getLogger("django_delayq.audit")
# A logger does not apply the filters of its parents.
logger.addFilter(keep_to_one_line)
#: Sent after a person changed something or saw hidden values: `request`, `action` (its name), `job_ids` (empty for more
#: than 100 jobs), `count`, `note` (a sentence). A long action sends one signal per request.
admin_action = Signal()
_MAX_REPR = 200
#: Most rows shown for a job or another subject: rows that name it, and rows about many jobs.
SHOWN, _SHOWN_ABOUT_MANY = 50, 10


def record(
    request: HttpRequest,
    action: str,
    sentence: Callable[[], object],
    *,
    job_ids: Sequence[str] = (),
    count: int = 1,
    destructive: bool = False,
    entry: int | None = None,
    object_id: str | None = None,
) -> int | None:
    """Record an action: one row for each of `job_ids`, or one row about the whole, whose primary key is returned.

    `sentence` is called with the project's language active: a log is in one language, whoever writes it. `entry` is the
    row that an earlier request of a long action wrote; it is updated. `object_id` names a subject that is not a job.
    """
    language = translation.get_language()
    # What is active then is LANGUAGE_CODE.
    translation.deactivate()
    try:
        note = printable(str(sentence()))
    finally:
        if language:
            translation.activate(language)
        else:
            translation.deactivate_all()
    named, who = f" ({', '.join(job_ids)})" if job_ids else "", request.user.get_username()
    logger.info("%s by %r: %s%s", action, who, note, named)
    send(admin_action, None, request=request, action=action, job_ids=list(job_ids), count=count, note=note)
    if request.user.pk is None:
        # The site's own rule let this person in without an account.
        return None
    row = LogEntry(
        user_id=request.user.pk,
        object_id=object_id,
        object_repr=note[:_MAX_REPR],
        action_flag=DELETION if destructive else CHANGE,
        change_message=note,
    )
    if job_ids:
        LogEntry.objects.bulk_create(_row_about(row, job_id) for job_id in job_ids)
        return None
    if entry and LogEntry.objects.filter(pk=entry, user_id=row.user_id, content_type=None).update(
        object_repr=row.object_repr, change_message=row.change_message
    ):
        return entry
    row.save()
    return int(row.pk)


def about(object_id: str | None) -> QuerySet[LogEntry]:
    """Return the rows that name a job or another subject, newest first; None: those about many jobs."""
    # Few rows have no content type, and that column has an index; `object_id` has none.
    entries = LogEntry.objects.filter(content_type=None, object_id=object_id)
    return entries.select_related("user").order_by("-action_time")


def for_job(job_id: str) -> list[LogEntry]:
    """Return the rows about a job, newest first: rows that name it, and rows about many jobs since its creation."""
    found, parsed_id = list(about(job_id)[:SHOWN]), from_text(job_id)
    if parsed_id is not None:
        since = moment(created_us(parsed_id[0]))
        for row in about(None).filter(action_time__gte=since)[:_SHOWN_ABOUT_MANY]:
            row.change_message = _("On many jobs at once: %s") % row.change_message
            found.append(row)
    return sorted(found, key=lambda row: row.action_time, reverse=True)


def _row_about(row: LogEntry, job_id: str) -> LogEntry:
    return LogEntry(
        user_id=row.user_id,
        object_id=job_id,
        object_repr=f"{job_id}: {row.object_repr}"[:_MAX_REPR],
        action_flag=row.action_flag,
        change_message=row.change_message,
    )
