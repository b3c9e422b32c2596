"""Queue: one queue's ready jobs, in the order in which they will be taken."""

from django.http import HttpResponse
from django.utils.translation import gettext as _

from django_delayq.admin.arguments import printable
from django_delayq.admin.context import PageContext
from django_delayq.admin.job_lists import READY
from django_delayq.admin.views import lists
from django_delayq.store.queries.snapshot import QueueState


def show(visit: PageContext, queue: str) -> HttpResponse:
    """Draw the list, also of a queue that has no job yet."""
    state = visit.snapshot.queues.get(queue, QueueState())
    return lists.show(
        visit,
        READY,
        title=_("Queue %s") % printable(queue),
        tab="queues",
        fixed={"queue": queue},
        state=state,
        paused_by=printable(state.paused.by) if state.paused else "",
        known=queue in visit.snapshot.queues,
        crumb=_("Queues"),
        crumb_url=visit.url("queues"),
    )
