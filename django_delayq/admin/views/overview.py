"""Overview: how everything stands, what was, and what comes, on one page."""

from dataclasses import dataclass

from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_delayq.admin.alerts import alerts
from django_delayq.admin.charts import last_hour, upcoming
from django_delayq.admin.filters import Filter
from django_delayq.admin.job_lists import DEAD, read
from django_delayq.admin.job_rows import JobLine
from django_delayq.admin.page import PageContext, PageResponse
from django_delayq.admin.views.queues import states
from django_delayq.metrics import ALL_JOBS, NO_HISTORY
from django_delayq.store.queries.snapshot import Snapshot
from django_delayq.templatetags.delayq import duration_text, grouped, percent

#: Newest dead letters looked at for functions that nobody knows, and shown.
_LOOKED, _SHOWN = 25, 8
#: Share of runs that the tiles and charts speak of.
_MOST = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One number that matters, with what it takes to understand it."""

    title: str
    number: str
    #: What is told beside the number, and below it.
    aside: str = ""
    detail: str
    url: str
    #: The number is of something that is wrong.
    bad: bool = False


def show(visit: PageContext) -> PageResponse:
    """Show the page; three round trips a shard."""
    now = visit.load_snapshot(facts=True)
    history = now.history.get(ALL_JOBS, NO_HISTORY)
    hour = history.last(now.now_us)
    newest = read(visit, DEAD, Filter(count=_LOOKED)).rows if now.dead else []
    tiles = _tiles(visit, now)
    return visit.render(
        "overview.html",
        tab="overview",
        title=_("Delayed jobs"),
        alerts=alerts(visit, newest),
        tiles=tiles,
        said=", ".join(f"{tile.title} {tile.number}" for tile in tiles),
        charts=[
            last_hour.finished(history, now.now_us, visit.timezone),
            upcoming.chart(visit),
            last_hour.percentiles("lag", _("Dispatch lag"), history, now.now_us, visit.timezone),
            last_hour.histogram("lag", _("Dispatch lag, how often"), hour),
            last_hour.percentiles("run", _("Run time"), history, now.now_us, visit.timezone),
            last_hour.histogram("run", _("Run time, how often"), hour),
        ],
        queues=states(visit),
        newest=[JobLine(row, visit.config.redact) for row in newest[:_SHOWN]],
        facts=_facts(visit),
    )


def _tiles(visit: PageContext, now: Snapshot) -> list[Tile]:
    hour, queues = now.figures(ALL_JOBS), now.queues.values()
    next_us = min((queue.next_due_us for queue in queues if queue.next_due_us is not None), default=None)
    ready_us = min((queue.oldest_ready_us for queue in queues if queue.oldest_ready_us is not None), default=None)
    run_us = min((each.oldest_us for each in visit.alive if each.oldest_us is not None), default=None)
    slots = sum({each.name or each.code: each.slots for each in visit.alive}.values())

    def since(us: int | None) -> str:
        return duration_text(max(0, now.now_us - us) if us is not None else None)

    return [
        Tile(
            title=_("Pending"),
            number=grouped(now.scheduled),
            detail=_("next in %s") % duration_text(max(0, next_us - now.now_us))
            if next_us is not None
            else _("none to come"),
            url=visit.url("pending"),
        ),
        Tile(
            title=_("Overdue"),
            number=grouped(now.overdue),
            detail=_("oldest %s") % since(now.oldest_overdue_us),
            url=visit.url("pending", within="overdue"),
            bad=bool(now.overdue),
        ),
        Tile(
            title=_("Ready"),
            number=grouped(now.ready),
            detail=_("oldest %s") % since(ready_us),
            url=visit.url("queues"),
        ),
        Tile(
            title=_("Running"),
            number=grouped(now.claimed),
            aside=ngettext("of %(slots)s slot", "of %(slots)s slots", slots) % {"slots": grouped(slots)},
            detail=_("longest %s") % since(run_us),
            url=visit.url("running"),
        ),
        Tile(
            title=_("Dead"),
            number=grouped(now.dead),
            aside=_("+%s/h") % grouped(now.died_last_hour),
            detail=_("newest %s") % since(now.newest_death_us),
            url=visit.url("dead"),
            bad=bool(now.dead),
        ),
        Tile(
            title=_("Done, 1 h"),
            number=grouped(hour.done),
            aside=percent(hour.success_share),
            detail=_("run time p95 %s") % duration_text(hour.run_us(_MOST)),
            url=visit.url("tasks"),
        ),
    ]


def _facts(visit: PageContext) -> list[str]:
    server = visit.snapshot.server
    told = [_("prefix %s") % visit.store.config.prefix]
    if server is None:
        return told
    memory = filesizeformat(server.used_memory)
    if server.maxmemory:
        memory = _("%(used)s of %(all)s") % {"used": memory, "all": filesizeformat(server.maxmemory)}
    said = [
        f"{server.kind.title()} {server.version}" if server.version else "",
        _("policy %s") % server.policy + (" ✓" if server.policy == "noeviction" else "") if server.policy else "",
        _("memory %s") % memory if server.used_memory else "",
    ]
    return [*filter(None, said), *told]
