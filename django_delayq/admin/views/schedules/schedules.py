"""Recurring schedules: those of all tasks, also of tasks that are not registered in this process."""

from django.utils.translation import gettext as _

from django_delayq.admin.lists.filters import SIZES, url_name
from django_delayq.admin.lists.schedule_list import ListRequest, Position, read
from django_delayq.admin.page import PageContext, PageResponse
from django_delayq.admin.views.schedules.rows import STATES, ScheduleRow
from django_delayq.store.schedules.schedule_filter import ScheduleFilter
from django_delayq.task import registry


def show(page: PageContext) -> PageResponse:
    """Return one page of the list; see `schedule_list.read()`."""
    wanted = ListRequest.read(page.request.GET)
    found, address = read(page, wanted), page.url("recurring")
    next_query = wanted.query(position=found.next_position) if found.next_position else ""
    clear_query = wanted.query(filter=ScheduleFilter(), position=Position())
    return page.render(
        "schedules.html",
        tab="recurring",
        title=_("Recurring schedules"),
        lines=[ScheduleRow.of(page, stored) for stored in found.schedules],
        found=found,
        filter=wanted.filter,
        errors=wanted.errors,
        task_text=url_name(wanted.filter.task) if wanted.filter.task else "",
        prefix_text=url_name(wanted.filter.prefix) if wanted.filter.prefix else "",
        count=wanted.count,
        sizes=SIZES,
        states=[(state.value, text) for state, (text, _css) in STATES.items()],
        task_names=[url_name(name) for name in registry.names()],
        list_url=address,
        # Also at its end, a filter of nothing leads back to the beginning.
        clear_url="?".join(filter(None, (address, clear_query))),
        first_url="?".join(filter(None, (address, wanted.query(position=Position()))))
        if wanted.position != Position()
        else "",
        next_url=f"{address}?{next_query}" if next_query else "",
        list_query=wanted.query(),
    )
