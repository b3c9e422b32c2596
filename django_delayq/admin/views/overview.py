"""Overview: jobs by state, the last hour or week, and the jobs that become due next."""

from dataclasses import dataclass

from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_delayq.admin.alerts import alerts
from django_delayq.admin.charts import history, upcoming
from django_delayq.admin.filters import Filter
from django_delayq.admin.job_lists import FAILED, read
from django_delayq.admin.job_rows import JobLine
from django_delayq.admin.page import PageContext, PageResponse
from django_delayq.admin.views.queues.queues import states
from django_delayq.metrics import ALL_JOBS
from django_delayq.store.queries.snapshot import Snapshot
from django_delayq.templatetags.delayq import duration_text, grouped, percent

#: Newest failed jobs: how many are checked for unregistered functions, and how many are shown.
_LOOKED, _SHOWN = 25, 8
#: The percentile of the run time that a tile shows.
_MOST = 0.95


@dataclass(frozen=True, slots=True)
class Tile:
    """One number that matters, with what explains it."""

    title: str
    number: int
    #: Text below the number.
    detail: str
    url: str
    #: Text beside the number.
    aside: str = ""
    #: The number counts something that is wrong.
    bad: bool = False


def show(page: PageContext) -> PageResponse:
    """Return the page; three round trips."""
    history.load(page, ALL_JOBS, facts=True)
    now, due = page.snapshot, page.request.GET.get("due", "")
    finished, *times = history.charts(page, ALL_JOBS, link=lambda span: page.url("overview", due=due, span=span))
    newest = read(page, FAILED, Filter(count=_LOOKED)).rows if now.dead else []
    tiles = _tiles(page, now)
    return page.render(
        "overview.html",
        tab="overview",
        title=_("Delayed jobs"),
        alerts=alerts(page, newest),
        tiles=tiles,
        announcement=", ".join(f"{tile.title} {grouped(tile.number)}" for tile in tiles),
        charts=[finished, upcoming.chart(page), *times],
        queues=states(page),
        newest=[JobLine(row, page.config.redact) for row in newest[:_SHOWN]],
        facts=_facts(page),
    )


def _tiles(page: PageContext, now: Snapshot) -> list[Tile]:
    hour, total = now.hour(ALL_JOBS), now.total
    run_us = min((each.oldest_us for each in page.alive if each.oldest_us is not None), default=None)
    slots = sum({each.name or each.code: each.slots for each in page.alive}.values())

    def since(us: int | None) -> str:
        return duration_text(max(0, now.now_us - us) if us is not None else None)

    if total.next_due_us is None:
        following = _("none to come")
    else:
        following = _("next in %s") % duration_text(max(0, total.next_due_us - now.now_us))
    overdue, oldest = _("oldest %s") % since(total.oldest_overdue_us), _("oldest %s") % since(total.oldest_ready_us)
    longest, newest = _("longest %s") % since(run_us), _("newest %s") % since(now.newest_death_us)
    of_slots = ngettext("of %(slots)s slot", "of %(slots)s slots", slots) % {"slots": grouped(slots)}
    run_time = _("run time p95 %s") % duration_text(hour.run_us(_MOST))
    return [
        Tile(_("Scheduled"), total.scheduled, following, page.url("scheduled")),
        Tile(_("Overdue"), total.overdue, overdue, page.url("scheduled", within="overdue"), bad=bool(total.overdue)),
        Tile(_("Ready"), total.ready, oldest, page.url("queues")),
        Tile(_("Running"), now.claimed, longest, page.url("running"), of_slots),
        Tile(
            _("Failed"), now.dead, newest, page.url("failed"), _("+%s/h") % grouped(now.died_last_hour), bool(now.dead)
        ),
        Tile(_("Done, 1 h"), hour.done, run_time, page.url("tasks"), percent(hour.success_share)),
    ]


def _facts(page: PageContext) -> list[str]:
    servers = list(page.snapshot.servers.values())
    prefix = _("prefix %s") % page.store.config.prefix
    if not servers:
        return [prefix]
    used = sum(server.used_memory for server in servers)
    memory = filesizeformat(used)
    if all(server.maxmemory for server in servers):
        most = sum(server.maxmemory for server in servers)
        memory = _("%(used)s of %(all)s") % {"used": memory, "all": filesizeformat(most)}
    policies = ", ".join(sorted({server.policy for server in servers} - {""}))
    facts = [
        _("%s servers") % grouped(len(servers)) if len(servers) > 1 else "",
        ", ".join(sorted({f"{server.kind.title()} {server.version}" for server in servers if server.version})),
        _("policy %s") % policies + (" ✓" if policies == "noeviction" else "") if policies else "",
        _("memory %s") % memory if used else "",
    ]
    return [*filter(None, facts), prefix]
