"""Queues: the jobs, the workers and the last hour of each queue."""

from dataclasses import dataclass

from django.utils.translation import gettext as _

from django_delayq.admin.lists.filters import url_name
from django_delayq.admin.lists.sorting import Column, Sorting
from django_delayq.admin.page import PageContext, PageResponse
from django_delayq.display.text import printable
from django_delayq.metrics import Stats, queue_dimension
from django_delayq.store.queries.snapshot import QueueState


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    """One queue."""

    queue: str
    state: QueueState
    hour: Stats
    running: int
    workers: int
    now_us: int

    @property
    def name(self) -> str:
        """Its name as displayed."""
        return printable(self.queue)

    @property
    def in_query(self) -> str:
        """Its name in URLs and forms."""
        return url_name(self.queue)

    @property
    def paused_by(self) -> str:
        """Who paused it."""
        return printable(self.state.paused.by) if self.state.paused else ""

    @property
    def oldest_us(self) -> int | None:
        """For how long the job that is claimed next has been due."""
        due_us = self.state.oldest_ready_us
        return None if due_us is None else max(0, self.now_us - due_us)

    @property
    def unserved(self) -> bool:
        """Whether jobs are ready, but no worker serves the queue."""
        return bool(self.state.ready and not self.workers)


_COLUMNS = {
    "queue": Column(lambda row: row.name.casefold(), largest_first=False),
    "scheduled": Column(lambda row: row.state.scheduled),
    "ready": Column(lambda row: row.state.ready),
    "oldest": Column(lambda row: row.oldest_us),
    "running": Column(lambda row: row.running),
    "workers": Column(lambda row: row.workers),
    "done": Column(lambda row: row.hour.done),
    "failed": Column(lambda row: row.hour.failed),
}


def states(page: PageContext) -> list[QueueRow]:
    """Return a row per queue; needs no round trip beyond the snapshot."""
    now = page.snapshot
    return [
        QueueRow(
            queue=name,
            state=state,
            hour=now.hour(queue_dimension(name)),
            running=now.claimed_of(name, lease_us=page.store.config.worker.lease_us),
            workers=len(page.workers_of(name)),
            now_us=now.now_us,
        )
        for name, state in now.queues.items()
    ]


def show(page: PageContext) -> PageResponse:
    """Return the page; one round trip."""
    sorting = Sorting.of(page, "queues", _COLUMNS)
    rows = sorting.apply(states(page))
    return page.render("queues.html", tab="queues", title=_("Queues"), queues=rows, sorting=sorting)
