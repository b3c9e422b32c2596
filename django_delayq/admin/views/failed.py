"""Failed jobs: the dead letters, which will not be retried, newest first or in groups by error and task."""

from dataclasses import replace
from typing import Any

from django.http import HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_delayq.admin.lists.error_group_rows import group_rows
from django_delayq.admin.lists.filters import ORDERS, Filter
from django_delayq.admin.lists.job_lists import FAILED
from django_delayq.admin.page import PageContext
from django_delayq.admin.views import lists
from django_delayq.clock import DAY_US
from django_delayq.conf.config import DispatcherConfig
from django_delayq.templatetags.delayq import duration_text, grouped


def show(page: PageContext) -> HttpResponse:
    """Show the list, or the groups."""
    job_filter = lists.filter_of(page)
    more: dict[str, Any] = {
        "group_links": [
            (label, FAILED.address(page, "", replace(job_filter, group=group).page()), group == job_filter.group)
            for group, label in (("", _("none")), ("error", _("error")), ("task", _("task")))
        ],
        "retention": _retention(page.store.config.dispatcher),
    }
    if job_filter.group:
        return _show_groups(page, job_filter, **more)
    return lists.show_list(page, FAILED, title=_("Failed jobs"), **more)


def _show_groups(page: PageContext, job_filter: Filter, **more: Any) -> HttpResponse:
    # A group counts the jobs of all queues, whatever their arguments are.
    ignored = [name for name, value in ((_("queue"), job_filter.queue), (_("text"), job_filter.text)) if value]
    job_filter = replace(job_filter, queue="", text="", cursor=None, before=False)
    found = group_rows(page, job_filter)
    titles = {"jobs": _("Jobs"), "last": _("Last"), "first": _("First")}
    return page.render(
        "error_groups.html",
        tab="failed",
        title=_("Failed jobs"),
        groups=found.rows,
        all_groups=found.total,
        all_jobs=found.jobs,
        orders=[
            (titles[order], FAILED.address(page, "", replace(job_filter, order=order).page()), order == found.order)
            for order in ORDERS
        ],
        ignored=ignored,
        page_query=job_filter.query(),
        **lists.filter_context(page, FAILED, job_filter, rows=()),
        **more,
    )


def _retention(config: DispatcherConfig) -> str:
    """Return how long failed jobs are kept, and how many."""
    age_us, maximum = config.dead_max_age_us, grouped(config.dead_max_count)
    days, rest_us = divmod(age_us, DAY_US)
    age = duration_text(age_us) if rest_us else ngettext("%s day", "%s days", days) % grouped(days)
    return _("Kept for %(age)s, at most %(maximum)s") % {"age": age, "maximum": maximum}
