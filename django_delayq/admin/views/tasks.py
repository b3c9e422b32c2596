"""Tasks: every registered task and its last hour, and unregistered ones of scheduled and failed jobs."""

import re
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from django.utils.translation import gettext as _

from django_delayq.admin.lists.filters import Filter, url_name
from django_delayq.admin.lists.job_lists import FAILED, SCHEDULED, read
from django_delayq.admin.lists.sorting import Column, Sorting
from django_delayq.admin.page import PageContext, PageResponse
from django_delayq.display.retry import retry_text
from django_delayq.display.text import printable, span_text
from django_delayq.job.job import hard_limit_us
from django_delayq.metrics import Stats, task_dimension
from django_delayq.store.queries.snapshot import Pause
from django_delayq.task import registry
from django_delayq.templatetags.delayq import NOTHING

#: How many scheduled and how many failed jobs are checked for tasks that are not registered in this process.
_LOOKED = 100
_HALF, _MOST = 0.5, 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRow:
    """One task."""

    task: str
    hour: Stats
    #: Whether it is registered in this process; if so, its queue, the most attempts (0: unknown), its retry policy and
    #: time limits in words, and its place in the source.
    registered: bool = False
    queue: str = ""
    max_attempts: int | None = 0
    retries: str = ""
    limits: str = ""
    where: str = ""
    #: None if it is not paused.
    pause: Pause | None = None

    @property
    def name(self) -> str:
        """Its dotted name as displayed."""
        return printable(self.task)

    @property
    def parts(self) -> list[str]:
        """The parts of its name; a line may break between them."""
        return re.findall(r"[^.]*\.?", self.name)[:-1]

    @property
    def in_query(self) -> str:
        """Its name in URLs."""
        return url_name(self.task)

    @property
    def paused_by(self) -> str:
        """Who paused it."""
        return printable(self.pause.by) if self.pause else ""

    @property
    def half_us(self) -> int | None:
        """The median of its run time."""
        return self.hour.run_us(_HALF)

    @property
    def most_us(self) -> int | None:
        """The 95th percentile of its run time."""
        return self.hour.run_us(_MOST)


def _attempts(row: TaskRow) -> float | None:
    """Return the most attempts of a task; None if they are not known."""
    return inf if row.max_attempts is None else row.max_attempts or None


_COLUMNS = {
    "task": Column(lambda row: row.name.casefold(), largest_first=False),
    "queue": Column(lambda row: row.queue.casefold() or None, largest_first=False),
    "attempts": Column(_attempts),
    "done": Column(lambda row: row.hour.done),
    "failed": Column(lambda row: row.hour.failed),
    "p95": Column(lambda row: row.most_us),
}


def show(page: PageContext) -> PageResponse:
    """Return the page; three round trips."""
    known = {task.name: task for task in map(registry.find, registry.names()) if task is not None}
    now = page.load_snapshot(tasks=list(known))
    unregistered = {
        row.task
        for place in (SCHEDULED, FAILED)
        for row in read(page, place, Filter(count=_LOOKED)).rows
        if row.task and registry.find(row.task) is None
    }
    unregistered |= {name for name in now.paused_tasks if registry.find(name) is None}
    lines = [
        TaskRow(task=name, hour=now.hour(task_dimension(name)), pause=now.paused_tasks.get(name))
        for name in sorted(unregistered)
    ]
    lines += [row_of(task, now.hour(task_dimension(name)), now.paused_tasks.get(name)) for name, task in known.items()]
    sorting = Sorting.of(page, "tasks", _COLUMNS)
    return page.render("tasks.html", tab="tasks", title=_("Tasks"), tasks=sorting.apply(lines), sorting=sorting)


def row_of(task: Any, hour: Stats, pause: Pause | None) -> TaskRow:
    """Return what the template shows of a task. Not the task itself: it is callable, and templates call callables."""
    # As it is now: `OPTIONS` of an alias give options to tasks of Django's @task.
    task = task.as_configured()
    code = task.func.__code__
    return TaskRow(
        task=task.name,
        hour=hour,
        registered=True,
        queue=task.queue,
        max_attempts=task.retry.max_attempts if task.retry else 0,
        retries=retry_text(task.retry, brief=True) if task.retry else "",
        limits=_limits_text(task.timeout_us, task.hard_timeout_us),
        where=f"{'/'.join(Path(code.co_filename).parts[-2:])}:{code.co_firstlineno}",
        pause=pause,
    )


def _limits_text(timeout_us: int | None, hard_timeout_us: int | None) -> str:
    """Return the time limit and the one by force: `30 s / 40 s`; empty without either."""
    limits = timeout_us, hard_limit_us(timeout_us, hard_timeout_us)
    return " / ".join(span_text(us) if us else NOTHING for us in limits) if any(limits) else ""
