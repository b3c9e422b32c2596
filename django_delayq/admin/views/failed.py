"""Failed jobs: the dead letters, which will not be retried, newest first or in groups by error and task."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from django.http import HttpResponse, QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_delayq.admin import job_lists
from django_delayq.admin.errors import ErrorSummary
from django_delayq.admin.filters import Filter
from django_delayq.admin.job_lists import FAILED
from django_delayq.admin.page import PageContext
from django_delayq.admin.views import lists
from django_delayq.clock import DAY_US
from django_delayq.conf.config import DispatcherConfig
from django_delayq.display.text import printable, short
from django_delayq.job.errors.attempt_error import AttemptError
from django_delayq.store.queries.job_pages import JobRow
from django_delayq.templatetags.delayq import duration_text, grouped


@dataclass(slots=True, kw_only=True)
class Group:
    """Failed jobs with the same task, and the same error if grouped by it."""

    error: str
    task: str
    #: The list of them, and its filter for the action forms; empty if no filter selects exactly these.
    url: str
    filter_query: str
    count: int = 0
    first_us: int
    last_us: int

    @property
    def title(self) -> str:
        """What they have in common."""
        facts = {"error": ErrorSummary(self.error, "").name, "task": printable(short(self.task)) or "?"}
        return _("%(error)s in %(task)s") % facts if self.error else facts["task"]


def show(page: PageContext) -> HttpResponse:
    """Show the list, or the groups."""
    job_filter = lists.filter_of(page)
    more: dict[str, Any] = {
        "group_links": [
            (label, FAILED.address(page, "", replace(job_filter, group=group).page()), group == job_filter.group)
            for group, label in (("", _("none")), ("error", _("error")), ("task", _("task")))
        ],
        "retention": _retention(page.store.config.dispatcher),
        "spans": {"15m": _("last 15 min"), "1h": _("last hour"), "24h": _("last 24 h"), "7d": _("last 7 days")},
        "span_label": _("Failed"),
    }
    if not job_filter.group:
        return lists.show_list(page, FAILED, title=_("Failed jobs"), **more)
    listing = job_lists.read(page, FAILED, job_filter, collect_matches=True)
    more["groups"] = groups(page, job_filter, listing.matched)
    more |= lists.list_context(page, FAILED, job_filter, listing)
    return page.render("failed.html", tab="failed", title=_("Failed jobs"), **more)


def _retention(config: DispatcherConfig) -> str:
    """Return how long failed jobs are kept, and how many."""
    age_us, maximum = config.dead_max_age_us, grouped(config.dead_max_count)
    days, rest_us = divmod(age_us, DAY_US)
    age = duration_text(age_us) if rest_us else ngettext("%s day", "%s days", days) % grouped(days)
    return _("Kept for %(age)s, at most %(maximum)s") % {"age": age, "maximum": maximum}


def groups(page: PageContext, job_filter: Filter, rows: Iterable[JobRow]) -> list[Group]:
    """Return failed jobs by error and task, or by task alone, the largest group first."""
    found: dict[tuple[str, str], Group] = {}
    for row in rows:
        error = printable(AttemptError.name_of_last(row.attempts)) if job_filter.group == "error" else ""
        key = error, row.task
        group = found.get(key)
        if group is None:
            wanted, task = (f"={name}" if name else "" for name in key)
            group_filter = replace(job_filter, group="", task=task or job_filter.task, error=wanted or job_filter.error)
            query = group_filter.page()
            # A group without a name, or with one that no filter can hold, has no filter that excludes other groups.
            has_names = key[1] and (key[0] or job_filter.group != "error")
            if not has_names or Filter.read(QueryDict(query)) != group_filter.plain():
                query = ""
            found[key] = group = Group(
                error=key[0],
                task=key[1],
                url=query and FAILED.address(page, "", query),
                filter_query=query,
                first_us=row.moment_us,
                last_us=row.moment_us,
            )
        group.count += 1
        group.first_us, group.last_us = min(group.first_us, row.moment_us), max(group.last_us, row.moment_us)
    return sorted(found.values(), key=lambda group: (-group.count, -group.last_us))
