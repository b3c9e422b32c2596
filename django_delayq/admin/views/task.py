"""The page of one task: its options, its last hour or week, its newest failures, what runs, and what comes next."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from django_delayq.admin.charts import history
from django_delayq.admin.lists.filters import Filter
from django_delayq.admin.lists.job_lists import FAILED, RUNNING, SCHEDULED, JobList, read_several
from django_delayq.admin.lists.job_rows import JobLine
from django_delayq.admin.page import PageContext, PageResponse
from django_delayq.admin.views.lists import job_query
from django_delayq.admin.views.tasks import TaskRow, row_of
from django_delayq.display.retry import retry_text
from django_delayq.display.text import printable, short, span_text
from django_delayq.job.job import hard_limit_us
from django_delayq.metrics import Stats, task_dimension
from django_delayq.task import registry
from django_delayq.templatetags.delayq import duration_text, grouped

#: How many jobs of each list are shown.
_SHOWN = 5
_SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Some jobs of the task in one list, and the address of all of them."""

    job_list: JobList
    lines: list[JobLine]
    url: str
    #: Whether the list was not read to its end, so that there may be others.
    more: bool


def show(page: PageContext, name: str) -> PageResponse:
    """Return the page, also of a task that is not registered; three round trips."""
    dimension, found = task_dimension(name), registry.find(name)
    history.load(page, dimension)
    pause = page.snapshot.paused_tasks.get(name)
    hour = page.snapshot.hour(dimension)
    line = row_of(found, hour, pause) if found is not None else TaskRow(task=name, hour=hour, pause=pause)
    charts = history.charts(page, dimension, link=lambda span: page.url("task_detail", name, span=span))
    return page.render(
        "task.html",
        tab="tasks",
        title=_("Task %s") % printable(short(name)),
        crumb=_("Tasks"),
        crumb_url=page.url("tasks"),
        line=line,
        options=list(_options(found.as_configured())) if found is not None else [],
        times=_times(history.total(page, dimension)),
        charts=charts,
        parts=_parts(page, name),
        finished_url=page.url("finished", task=line.in_query) if page.store.config.worker.finished_kept else "",
    )


def _parts(page: PageContext, name: str) -> list[Part]:
    # The exact name: others may end alike.
    wanted = Filter(task=f"={name}", count=_SHOWN)
    lists = (FAILED, RUNNING, SCHEDULED)
    return [
        Part(
            job_list=job_list,
            lines=[
                JobLine(
                    row,
                    page.config.redact,
                    url=f"{page.url('job_detail', row.id)}?{job_query(job_list, Filter(task=wanted.task), row)}",
                )
                for row in listing.rows
            ],
            url=job_list.address(page, "", Filter(task=wanted.task).query()),
            more=listing.next_cursor is not None,
        )
        for job_list, listing in zip(lists, read_several(page, [(each, wanted) for each in lists]), strict=True)
    ]


def _times(total: Stats) -> list[tuple[str, str, str]]:
    """Return (percentile, start delay, run time) as text; none if nothing ran."""
    if total.run_us(0.5) is None:
        return []
    return [
        (title, duration_text(total.lag_us(share)), duration_text(total.run_us(share)))
        for title, share in _SHARES.items()
    ]


def _options(task: Any) -> Iterator[tuple[str, str]]:
    """Yield the title and the value of each option that the task has."""
    yield _("Queue"), printable(task.queue)
    if task.priority:
        yield _("Priority"), str(task.priority)
    if task.retry is not None:
        most = task.retry.max_attempts
        yield _("Attempts"), _("no limit") if most is None else grouped(most)
        yield _("Retries"), printable(retry_text(task.retry))
    if task.timeout_us:
        yield _("Timeout"), span_text(task.timeout_us)
    if hard_us := hard_limit_us(task.timeout_us, task.hard_timeout_us):
        yield _("Hard timeout"), span_text(hard_us)
    if task.key_of is not None or task.key is not None:
        yield _("Unique by"), printable(_named(task.key_of or task.key))
    if task.tenant_of is not None or task.tenant is not None:
        yield _("Tenant"), printable(_named(task.tenant_of or task.tenant))
    if task.limits.limits:
        yield _("Limits"), printable(", ".join(_limit(each) for each in task.limits.limits))
    if task.expires is not None and task.expires.span_us:
        yield _("Expires"), _("%s after its due time") % span_text(task.expires.span_us)
    if task.result_ttl_us is not None:
        yield _("Result kept"), span_text(task.result_ttl_us) if task.result_ttl_us else "RESULT_TTL"
    if task.sensitive:
        yield _("Sensitive"), _("all arguments") if task.sensitive is True else printable(", ".join(task.sensitive))
    if task.aliases:
        yield _("Aliases"), printable(", ".join(task.aliases))


def _limit(limit: Any) -> str:
    return f"{limit.name}: {_named(limit.value)}" if limit.value is not None else str(limit.name)


def _named(value: Any) -> str:
    """Return a value, or the name of the function that computes it from the arguments."""
    return f"{getattr(value, '__name__', type(value).__name__)}()" if callable(value) else str(value)
