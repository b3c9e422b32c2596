"""Filter chips: what the filter of a list says, each with the address of the list without it."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from django.utils.translation import gettext as _

from django_delayq.admin.errors import ErrorSummary, outcome_name
from django_delayq.admin.lists.filters import OUTCOMES, Filter
from django_delayq.admin.lists.job_lists import FINISHED, READY, JobList
from django_delayq.admin.page import PageContext
from django_delayq.display.text import printable
from django_delayq.job.job import State
from django_delayq.templatetags.delayq import zoned

_EMPTY = Filter()


class Chip(NamedTuple):
    """One part of a filter."""

    name: str
    value: str
    #: The list without this part.
    url: str


def chips(page: PageContext, job_list: JobList, job_filter: Filter) -> list[Chip]:
    """Return the chips of a filter."""

    def without(*names: str) -> str:
        changed = replace(job_filter.plain(), **{name: getattr(_EMPTY, name) for name in names})
        queue = changed.queue or (job_filter.queue if job_list is READY else "")
        return job_list.address(page, queue, (replace(changed, queue="") if job_list is READY else changed).query())

    found = _parts(page, job_list, job_filter)
    return [Chip(name, printable(value), without(*fields)) for fields, name, value in found if value]


def _parts(page: PageContext, job_list: JobList, job_filter: Filter) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Yield the fields, the name and the value of each part."""
    if job_list is not READY:
        yield ("queue",), _("queue"), job_filter.queue
    yield ("task",), _("task"), job_filter.task.removeprefix("=")
    yield ("error",), _("error"), job_filter.error and outcome_name(job_filter.error.removeprefix("="))
    yield ("error_group",), _("error"), job_filter.error_group and _group_title(page, job_filter.error_group)
    yield ("tenant",), _("tenant"), job_filter.tenant
    if job_list is FINISHED:
        yield ("outcome",), _("outcome"), job_filter.outcome and str(OUTCOMES[State(job_filter.outcome)].title)
    yield ("text",), _("text"), job_filter.text
    times = " – ".join(_moment_text(page, us) for us in (job_filter.from_us, job_filter.to_us))
    within = job_filter.within and str(job_list.spans.get(job_filter.within, job_filter.within))
    yield ("within",), job_list.moment_label, within
    has_times = job_filter.from_us is not None or job_filter.to_us is not None
    yield ("from_us", "to_us"), job_list.moment_label, times if has_times else ""


def _group_title(page: PageContext, digest: str) -> str:
    found = page.error_groups.get(bytes.fromhex(digest))
    if found is None or found.group is None:
        return _("other errors") if found else _("none left")
    summary = ErrorSummary(found.group.error, found.group.message)
    return _("%(error)s in %(task)s") % {"error": summary, "task": found.group.task}


def _moment_text(page: PageContext, us: int | None) -> str:
    if us is None:
        return "…"
    at: datetime = zoned(us, page.timezone)
    return f"{at:%Y-%m-%d %H:%M:%S}".removesuffix(":00")
