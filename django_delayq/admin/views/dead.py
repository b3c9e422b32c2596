"""Dead letters: the jobs that will not be tried again, newest first, or by what they died of."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from django.http import HttpResponse, QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_delayq.admin import job_lists
from django_delayq.admin.arguments import printable, short
from django_delayq.admin.errors import ErrorSummary
from django_delayq.admin.filters import Filter
from django_delayq.admin.job_lists import DEAD
from django_delayq.admin.page import PageContext
from django_delayq.admin.views import lists
from django_delayq.clock import DAY_US
from django_delayq.conf.config import DispatcherConfig
from django_delayq.store.queries.job_pages import JobRow
from django_delayq.templatetags.delayq import duration_text, grouped


@dataclass(slots=True, kw_only=True)
class Group:
    """Dead letters alike."""

    error: str
    task: str
    #: The list of them, and what a form says of them; empty where no filter means them alone.
    url: str
    order: str
    count: int = 0
    first_us: int
    last_us: int

    @property
    def title(self) -> str:
        """What they have in common."""
        facts = {"error": ErrorSummary(self.error, "").name, "function": printable(short(self.task)) or "?"}
        return _("%(error)s in %(function)s") % facts if self.error else facts["function"]


def show(visit: PageContext) -> HttpResponse:
    """Draw the list, or the groups."""
    spans = {"15m": _("last 15 min"), "1h": _("last hour"), "24h": _("last 24 h"), "7d": _("last 7 days")}
    config = visit.store.config.dispatcher
    asked = lists.asked_of(visit)
    kinds = [
        (label, DEAD.address(visit, "", replace(asked, group=group).page()), group == asked.group)
        for group, label in (("", _("none")), ("error", _("error")), ("function", _("function")))
    ]
    more: dict[str, Any] = {
        "kinds": kinds,
        "kept": _kept(config),
        "spans": spans,
        "span_label": _("Died"),
    }
    if not asked.group:
        return lists.show_list(visit, DEAD, title=_("Dead letters"), **more)
    listing = job_lists.read(visit, DEAD, asked, gather=True)
    more["groups"] = groups(visit, asked, listing.matched)
    more |= lists.context(visit, DEAD, asked, listing)
    return visit.render("dead.html", tab="dead", title=_("Dead letters"), **more)


def _kept(config: DispatcherConfig) -> str:
    """Return for how long dead letters are kept, and how many."""
    age_us, most = config.dead_max_age_us, grouped(config.dead_max_count)
    days, rest_us = divmod(age_us, DAY_US)
    age = duration_text(age_us) if rest_us else ngettext("%s day", "%s days", days) % grouped(days)
    return _("Kept for %(age)s, at most %(most)s") % {"age": age, "most": most}


def groups(visit: PageContext, asked: Filter, rows: Iterable[JobRow]) -> list[Group]:
    """Return dead letters by error and function, or by function alone, the most frequent first."""
    found: dict[tuple[str, str], Group] = {}
    for row in rows:
        key = ErrorSummary.of(row.attempts).error if asked.group == "error" else "", row.task
        group = found.get(key)
        if group is None:
            function, error = (f"={name}" if name else "" for name in (key[1], key[0]))
            only = replace(asked, group="", function=function or asked.function, error=error or asked.error)
            order = only.page()
            # What has no name, or one that no filter can hold, cannot be asked for: that would mean others too.
            if not (key[1] and (key[0] or asked.group != "error")) or Filter.read(QueryDict(order)) != only.plain():
                order = ""
            found[key] = group = Group(
                error=key[0],
                task=key[1],
                url=order and DEAD.address(visit, "", order),
                order=order,
                first_us=row.moment_us,
                last_us=row.moment_us,
            )
        group.count += 1
        group.first_us, group.last_us = min(group.first_us, row.moment_us), max(group.last_us, row.moment_us)
    return sorted(found.values(), key=lambda group: (-group.count, -group.last_us))
