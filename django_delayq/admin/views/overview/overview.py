"""Overview: jobs by state, the last hour or week, and the jobs that become due next."""

from dataclasses import dataclass

from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_delayq.admin.alerts import alerts
from django_delayq.admin.charts import history, upcoming
from django_delayq.admin.lists.filters import Filter
from django_delayq.admin.lists.job_lists import FAILED, read
from django_delayq.admin.lists.job_rows import JobLine
from django_delayq.admin.page import PageContext, PageResponse
from django_delayq.admin.views.queues.queues import states
from django_delayq.metrics import ALL_JOBS
from django_delayq.monitoring import delays
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


#: Names in addresses -> titles of the tabs below the chart of what comes, and which of `history.charts()` each shows.
_TABS = {
    "": (gettext_lazy("Finished"), (0, 1)),
    "delay": (gettext_lazy("Start delay"), (1, 2)),
    "run": (gettext_lazy("Run time"), (3, 4)),
}


def show(page: PageContext) -> PageResponse:
    """Return the page; three round trips."""
    history.load(page, ALL_JOBS, facts=True)
    now, chosen = page.snapshot, {name: page.request.GET.get(name, "") for name in ("due", "span", "charts")}

    def link(name: str, value: str) -> str:
        return page.url("overview", **{**chosen, name: value})

    past = history.charts(page, ALL_JOBS, link=lambda span: link("span", span))
    tab = chosen["charts"] if chosen["charts"] in _TABS else ""
    newest = read(page, FAILED, Filter(count=_LOOKED)).rows if now.dead else []
    coming = upcoming.read(page)
    tiles, found = (
        _tiles(page, now),
        alerts(page, newest, late_us=delays.first_late_us(page, coming.edges, coming.by_queue)),
    )
    return page.render(
        "overview.html",
        tab="overview",
        title=_("Delayed jobs"),
        alerts=found,
        is_clear=not (found or page.missing or any(tile.bad for tile in tiles)),
        tiles=tiles,
        announcement=", ".join(f"{tile.title} {grouped(tile.number)}" for tile in tiles),
        coming=upcoming.chart(page, coming, link=lambda due: link("due", due)),
        charts=[past[number] for number in _TABS[tab][1]],
        chart_tabs=[(str(title), link("charts", name), name == tab) for name, (title, _charts) in _TABS.items()],
        queues=states(page),
        newest=[JobLine(row, page.config.redact) for row in newest[:_SHOWN]],
        facts=_facts(page),
    )


def _tiles(page: PageContext, now: Snapshot) -> list[Tile]:
    hour, total = now.hour(ALL_JOBS), now.total
    run_us = min((each.oldest_us for each in page.alive if each.oldest_us is not None), default=None)
    slots = sum(each.slots for each in page.workers)

    def since(us: int | None) -> str:
        return duration_text(max(0, now.now_us - us) if us is not None else None)

    if total.next_due_us is None:
        following = _("none to come")
    else:
        following = _("next in %s") % duration_text(max(0, total.next_due_us - now.now_us))
    # A healthy zero is quiet: it has no explanation.
    overdue = _("oldest %s") % since(total.oldest_overdue_us) if total.overdue else ""
    oldest = _("oldest %s") % since(total.oldest_ready_us) if total.ready else ""
    longest = _("longest %s") % since(run_us) if now.claimed else ""
    newest = _("newest %s") % since(now.newest_death_us) if now.dead else ""
    died = _("+%s/h") % grouped(now.died_last_hour) if now.died_last_hour else ""
    of_slots = ngettext("of %(slots)s slot", "of %(slots)s slots", slots) % {"slots": grouped(slots)}
    run_time = _("run time p95 %s") % duration_text(hour.run_us(_MOST)) if hour.finished else ""
    return [
        Tile(_("Scheduled"), total.scheduled, following, page.url("scheduled")),
        Tile(_("Overdue"), total.overdue, overdue, page.url("scheduled", within="overdue"), bad=bool(total.overdue)),
        Tile(_("Ready"), total.ready, oldest, page.url("queues")),
        Tile(_("Running"), now.claimed, longest, page.url("running"), of_slots),
        Tile(_("Failed"), now.dead, newest, page.url("failed"), died, bool(now.dead)),
        Tile(
            _("Done, 1 h"), hour.done, run_time, page.url("tasks"), percent(hour.success_share) if hour.finished else ""
        ),
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
