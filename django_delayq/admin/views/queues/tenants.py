"""Tenants: those of one queue that have waiting jobs, the ones with the most first, and those that are paused."""

from dataclasses import dataclass, replace
from functools import reduce

from django.utils.translation import gettext as _

from django_delayq.admin.lists.filters import url_name
from django_delayq.admin.page import PageContext, PageResponse
from django_delayq.display.text import printable
from django_delayq.store.digests import tenant_digest
from django_delayq.store.queries.snapshot import QueueState
from django_delayq.store.queries.tenants import TenantState

#: Most tenants that the page shows, and most of the paused ones beyond them; and most that it reads from a shard.
_SHOWN, _READ = 100, 1_000
#: Most round trips to a shard for paused tenants without jobs.
_PAUSE_READS = 20
_WITHOUT_NAME = tenant_digest(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantRow:
    """One tenant of the queue."""

    state: TenantState
    #: Its part of the waiting jobs of the queue, 0 to 1.
    share: float
    #: None if its name is unknown; 0 if the queue is not fair.
    weight: int | None

    @property
    def is_named(self) -> bool:
        """Whether it has a name that is known: only then it can be paused, and its jobs be cancelled."""
        return _is_named(self.state)

    @property
    def name(self) -> str:
        """Its name as displayed."""
        if self.is_named:
            return printable(self.state.name or "")
        if self.state.digest == _WITHOUT_NAME:
            return _("No tenant")
        return _("Name unknown (%s)") % self.state.digest.hex()

    @property
    def in_form(self) -> str:
        """Its name in forms."""
        return url_name(self.state.name) if self.state.name else ""

    @property
    def paused_by(self) -> str:
        """Who paused it."""
        return printable(self.state.paused.by) if self.state.paused else ""


def show(page: PageContext, queue: str) -> PageResponse:
    """Show the tenants of a queue; a round trip for each hundred tenants of the largest shard, and for the paused."""
    options, state = page.store.config.tasks.options_of(queue), page.snapshot.queues.get(queue, QueueState())
    found, complete = _read(page, queue, fair=options.fair)
    found.sort(key=lambda each: (-each.waiting, each.name or "", each.digest))
    # Nobody could resume a paused tenant that is not shown.
    paused = [each for each in found[_SHOWN:] if options.fair and each.paused][:_SHOWN]
    if not complete:
        # Their jobs may be among those that were not read.
        paused = [_find(page, queue, each) for each in paused]
    # The tenants were counted after the queue.
    waiting = max(state.scheduled + state.ready, sum(each.waiting for each in found))
    rows = [
        TenantRow(
            state=each,
            share=each.waiting / waiting if waiting else 0.0,
            weight=options.weight_of(each.name) if _is_named(each) or each.digest == _WITHOUT_NAME else None,
        )
        for each in (*found[:_SHOWN], *paused)
    ]
    return page.render(
        "tenants.html",
        tab="queues",
        title=_("Tenants of queue %s") % printable(queue),
        tenants=rows,
        found=len(found),
        complete=complete,
        most_read=_READ,
        options=options,
        queue_text=url_name(queue),
        crumb=_("Queue %s") % printable(queue),
        crumb_url=page.url("queue_detail", queue),
    )


def _read(page: PageContext, queue: str, *, fair: bool) -> tuple[list[TenantState], bool]:
    """Return the tenants of all shards, with the paused ones of a fair queue, and whether these are all."""
    merged: dict[bytes, TenantState] = {}
    complete = True
    scans = _PAUSE_READS if fair else None
    parts = page.reads.read(lambda shard: page.store.tenants(shard).read_tenants(queue, most=_READ, most_scans=scans))
    for states, paused, has_all in parts.values():
        for state in states:
            known = merged.get(state.digest)
            merged[state.digest] = _sum(known, state) if known else state
        for state in paused:
            merged.setdefault(state.digest, state)
        complete = complete and has_all
    return list(merged.values()), complete


def _find(page: PageContext, queue: str, state: TenantState) -> TenantState:
    """Return a tenant with its waiting jobs of all shards."""
    found = page.reads.read(lambda shard: page.store.tenants(shard).read_tenant(queue, state.digest))
    return reduce(_sum, found.values())


def _sum(one: TenantState, other: TenantState) -> TenantState:
    """Return what two shards have of one tenant: its jobs are in several after a change of SHARDS."""
    moments = [each.oldest_us for each in (one, other) if each.oldest_us is not None]
    return replace(
        one,
        name=one.name if one.name is not None else other.name,
        waiting=one.waiting + other.waiting,
        oldest_us=min(moments, default=None),
        paused=one.paused or other.paused,
    )


def _is_named(state: TenantState) -> bool:
    # A body that somebody changed in Redis may name another tenant than the one whose jobs were counted.
    return bool(state.name) and tenant_digest(state.name) == state.digest
