"""Journal: who did what, and who looked at what is hidden: rows of the admin's log, a log line, a signal."""

import logging
from collections.abc import Sequence

from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.dispatch import Signal
from django.http import HttpRequest
from django.utils.translation import gettext as _

from django_delayq.admin.arguments import printable
from django_delayq.clock import moment
from django_delayq.job.ids import created_us, from_text
from django_delayq.signals import keep_to_one_line, send

logger = logging.getLogger("django_delayq.audit")
# A logger's filters do not hold for the ones below it.
logger.addFilter(keep_to_one_line)
#: Sent after a person did something, or saw what is hidden: `request`, `action` (its name), `job_ids` (none where it
#: was done to more than 100), `count`, `note` (a sentence). A long action sends one for each request it took.
admin_action = Signal()
#: Jobs that get a row each.
MOST_ROWS = 100
_REPR = 200
#: Rows told of a job: of those that name it, and of those about many.
_TOLD, _TOLD_OF_MANY = 50, 10


def record(
    request: HttpRequest,
    action: str,
    sentence: str,
    *,
    job_ids: Sequence[str] = (),
    count: int = 1,
    destroys: bool = False,
    entry: int | None = None,
    object_id: str | None = None,
) -> int | None:
    """Write down what was done; a row for each job named, else one about the whole. Returns the latter's number.

    `entry` is that of a long action's first request: its row is written anew. `object_id` names what is no job.
    """
    sentence = printable(sentence)
    logger.info("%s by %s: %s%s", action, _who(request), sentence, f" ({', '.join(job_ids)})" if job_ids else "")
    send(admin_action, None, request=request, action=action, job_ids=list(job_ids), count=count, note=sentence)
    if request.user.pk is None:
        # Let in by a site's own rule, without an account.
        return None
    row = LogEntry(
        user_id=request.user.pk,
        object_id=object_id,
        object_repr=sentence[:_REPR],
        action_flag=DELETION if destroys else CHANGE,
        change_message=sentence,
    )
    if job_ids:
        LogEntry.objects.bulk_create(_about(row, job_id) for job_id in job_ids)
        return None
    if entry and LogEntry.objects.filter(pk=entry, user_id=row.user_id, content_type=None).update(
        object_repr=row.object_repr, change_message=row.change_message
    ):
        return entry
    row.save()
    return int(row.pk)


def for_job(job_id: str) -> list[LogEntry]:
    """Return the rows about a job, newest first: those that name it, and what was done to many since it was made."""
    # Few rows have no content type, and that column has an index; the id's has none.
    ours = LogEntry.objects.filter(content_type=None).select_related("user").order_by("-action_time")
    found, place = list(ours.filter(object_id=job_id)[:_TOLD]), from_text(job_id)
    if place is not None:
        since = moment(created_us(place[0]))
        for row in ours.filter(object_id=None, action_time__gte=since)[:_TOLD_OF_MANY]:
            row.change_message = _("To many tasks at once: %s") % row.change_message
            found.append(row)
    return sorted(found, key=lambda row: row.action_time, reverse=True)


def _about(row: LogEntry, job_id: str) -> LogEntry:
    return LogEntry(
        user_id=row.user_id,
        object_id=job_id,
        object_repr=f"{job_id}: {row.object_repr}"[:_REPR],
        action_flag=row.action_flag,
        change_message=row.change_message,
    )


def _who(request: HttpRequest) -> str:
    return repr(request.user.get_username())
