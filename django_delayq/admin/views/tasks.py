"""Functions: every task function that this process knows, and those met pending or dead, with their last hour."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.utils.translation import gettext as _

from django_delayq.admin.arguments import printable
from django_delayq.admin.filters import Filter, url_name
from django_delayq.admin.job_lists import DEAD, PENDING, read
from django_delayq.admin.page import PageContext, PageResponse
from django_delayq.clock import duration_us
from django_delayq.job.retry import RetryPolicy
from django_delayq.metrics import Stats, task_dimension
from django_delayq.task import registry

#: Rows of pending tasks and of dead letters looked at for functions that this process does not know.
_LOOKED = 100
_HALF, _MOST = 0.5, 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRow:
    """One function."""

    task: str
    hour: Stats
    #: Whether this process knows it, and then where its tasks go by default, how they are tried again, how long a try
    #: may take, and where it is written.
    registered: bool = False
    queue: str = ""
    retry: RetryPolicy | None = None
    timeout_us: int | None = None
    where: str = ""

    @property
    def name(self) -> str:
        """Its dotted name for the eye."""
        return printable(self.task)

    @property
    def parts(self) -> list[str]:
        """Its name in the parts between which it may be broken."""
        return re.findall(r"[^.]*\.?", self.name)[:-1]

    @property
    def in_query(self) -> str:
        """Its name for addresses."""
        return url_name(self.task)

    @property
    def base_us(self) -> int | None:
        """The longest wait before its second try."""
        return duration_us(self.retry.base) if self.retry else None

    @property
    def cap_us(self) -> int | None:
        """The longest wait before any try."""
        return duration_us(self.retry.cap) if self.retry else None

    @property
    def half_us(self) -> int | None:
        """The time within which half of its runs ended."""
        return self.hour.run_us(_HALF)

    @property
    def most_us(self) -> int | None:
        """The time within which nearly all of its runs ended."""
        return self.hour.run_us(_MOST)


def show(visit: PageContext) -> PageResponse:
    """Show the list; three round trips a shard."""
    known = {task.name: task for task in map(registry.find, registry.names()) if task is not None}
    now = visit.load_snapshot(tasks=list(known))
    strangers = {
        row.task
        for place in (PENDING, DEAD)
        for row in read(visit, place, Filter(count=_LOOKED)).rows
        if row.task and registry.find(row.task) is None
    }
    lines = [TaskRow(task=name, hour=now.figures(task_dimension(name))) for name in sorted(strangers)]
    lines += [_line(task, now.figures(task_dimension(name)), visit) for name, task in known.items()]
    return visit.render("tasks.html", tab="tasks", title=_("Tasks"), tasks=lines)


def _line(task: Any, hour: Stats, visit: PageContext) -> TaskRow:
    """Take out of a task what the template shows. The task itself is callable, and a template calls what it can."""
    code = task.func.__code__
    return TaskRow(
        task=task.name,
        hour=hour,
        registered=True,
        queue=task.queue,
        retry=task.retry or visit.store.config.tasks.retry,
        timeout_us=task.timeout_us,
        where=f"{'/'.join(Path(code.co_filename).parts[-2:])}:{code.co_firstlineno}",
    )
