"""Servers: the shards with their servers and jobs, and what is left of an older number of shards."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_delayq.admin.alerts import layout_alerts
from django_delayq.admin.lists.sorting import Column, Sorting
from django_delayq.admin.page import PageContext, PageResponse
from django_delayq.display.text import printable
from django_delayq.job.layout import Layout
from django_delayq.metrics import ALL_JOBS, Stats
from django_delayq.store.growth.lingering import KnownLeft
from django_delayq.store.queries.snapshot import Snapshot, absences
from django_delayq.store.servers.server_info import ServerInfo
from django_delayq.templatetags.delayq import grouped

#: Most processes that are named because they do not serve all shards.
_MAX_NAMES = 20


class Status(NamedTuple):
    """The state of a shard in a word, and the colour of it."""

    text: str
    css_class: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRow:
    """One shard and its server. Without a snapshot its server does not answer, and `error` says why."""

    shard: int
    address: str
    layout: Layout
    snapshot: Snapshot | None = None
    left: KnownLeft | None = None
    error: str = ""

    @property
    def server(self) -> str:
        """The address of its server as displayed, without user and password."""
        return printable(self.address)

    @property
    def info(self) -> ServerInfo | None:
        """Facts about the server; None if it does not answer, or if this user may not read them."""
        return next(iter(self.snapshot.servers.values()), None) if self.snapshot else None

    @property
    def hour(self) -> Stats | None:
        """What ended here within the last hour."""
        return self.snapshot.hour(ALL_JOBS) if self.snapshot else None

    @property
    def status(self) -> Status:
        """Whether it answers, takes jobs, and may be dropped."""
        if self.snapshot is None:
            return Status(_("down"), "bad")
        if self.info and self.info.replica:
            return Status(_("replica"), "bad")
        if self.shard in self.layout.draining:
            return Status(_("draining"), "warn")
        if self.shard >= self.layout.shards:
            return Status(_("announced"), "quiet")
        return Status(_("active"), "good")

    @property
    def memory(self) -> str:
        """How much memory its server uses, and of how much."""
        info = self.info
        if info is None:
            return ""
        used = filesizeformat(info.used_memory)
        return (
            _("%(used)s of %(all)s") % {"used": used, "all": filesizeformat(info.maxmemory)} if info.maxmemory else used
        )

    @property
    def version(self) -> str:
        """Redis or Valkey, and its version."""
        return printable(f"{self.info.kind.title()} {self.info.version}") if self.info and self.info.version else ""

    @property
    def policy(self) -> str:
        """What the server does when its memory is full."""
        return printable(self.info.policy) if self.info else ""

    @property
    def other_layout(self) -> int | None:
        """The number of the layout that the shard knows, if it is another one; None if nothing is stored there."""
        known = self.left.layout if self.left else None
        return known.number if known and known.number != self.layout.number else None

    @property
    def left_text(self) -> str:
        """What is left here of an older number of shards, as far as it is known without a count."""
        left, layout = self.left, self.layout
        if left is None or layout.is_finished or self.shard >= max(each.shards for each in layout.chain):
            return ""
        if self.shard in layout.draining:
            return _("all that is here")
        if left.counted_for < max(each.since for each in layout.chain):
            return _("not counted yet")
        texts = [
            ngettext("%s value", "%s values", left.values) % grouped(left.values) if left.values else "",
            ngettext("%s recurring schedule", "%s recurring schedules", left.leaving_schedules)
            % grouped(left.leaving_schedules)
            if left.leaving_schedules
            else "",
        ]
        return ", ".join(filter(None, texts)) or _("nothing")


def _figure(read: Callable[[Snapshot], Any]) -> Column:
    return Column(lambda row: read(row.snapshot) if row.snapshot else None)


_COLUMNS = {
    "shard": Column(lambda row: row.shard, largest_first=False),
    "server": Column(lambda row: row.server, largest_first=False),
    "scheduled": _figure(lambda snapshot: snapshot.total.scheduled),
    "ready": _figure(lambda snapshot: snapshot.total.ready),
    "running": _figure(lambda snapshot: snapshot.claimed),
    "failed": _figure(lambda snapshot: snapshot.dead),
    "done": _figure(lambda snapshot: snapshot.hour(ALL_JOBS).done),
    "memory": Column(lambda row: row.info.used_memory if row.info else None),
}


def show(page: PageContext) -> PageResponse:
    """Return the page; two round trips if the number of shards has changed, otherwise one."""
    page.load_snapshot(facts=True)
    snapshots, layout = page.snapshots, page.store.layout
    changed = layout.has_changed or bool(layout.coming)
    left = page.reads.read(lambda shard: page.store.lingering(shard).read_known()) if changed else {}
    rows = [
        ShardRow(
            shard=shard,
            address=page.store.producer_shard(shard).route.server_label,
            layout=layout,
            snapshot=snapshot,
            left=left.get(shard),
        )
        for shard, snapshot in snapshots.items()
        if shard in page.answering
    ]
    rows += [
        ShardRow(shard=shard, address=missing.server, layout=layout, error=printable(str(missing.error)))
        for missing in page.reads.missing
        for shard in missing.shards
    ]
    sorting = Sorting.of(page, "servers", _COLUMNS)
    return page.render(
        "servers.html",
        tab="servers",
        title=_("Servers and shards"),
        alerts=[replace(each, url="") for each in layout_alerts(page)],
        layout=layout,
        rows=sorting.apply(sorted(rows, key=lambda row: row.shard)),
        # A single row has no order.
        sorting=sorting if len(rows) > 1 else None,
        shows_left=not layout.is_finished,
        others=_names(absences(snapshots, lease_us=page.store.config.worker.lease_us)),
    )


def _names(absent: Mapping[tuple[str, str], list[int]]) -> list[str]:
    """Return each process that does not serve all shards, with those that it leaves out."""
    # One without a name has not reported yet.
    named = [f"{printable(name)} ({', '.join(map(str, shards))})" for (_kind, name), shards in absent.items() if name]
    return [*named[:_MAX_NAMES], *(["…"] if len(named) > _MAX_NAMES else [])]
