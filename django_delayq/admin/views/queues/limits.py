"""Limits: the rule and the jobs of each limit that the project declares, and the tasks that are paused."""

from dataclasses import dataclass

from django.utils.translation import gettext as _

from django_delayq.admin.lists.filters import url_name
from django_delayq.admin.page import PageContext, PageResponse
from django_delayq.conf.limit_rules import LimitRule
from django_delayq.display.limits import rule_text, with_declared_values
from django_delayq.display.text import printable
from django_delayq.store.queries.limits import LimitState
from django_delayq.store.queries.snapshot import Pause
from django_delayq.task import registry


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRow:
    """One limit."""

    limit: str
    rule: LimitRule
    state: LimitState

    @property
    def name(self) -> str:
        """Its name as displayed."""
        return printable(self.limit)

    @property
    def rule_text(self) -> str:
        """Its rule in words."""
        return rule_text(self.rule)


@dataclass(frozen=True, slots=True, kw_only=True)
class PausedTaskRow:
    """One paused task."""

    task: str
    pause: Pause
    waiting: int

    @property
    def name(self) -> str:
        """Its dotted name as displayed."""
        return printable(self.task)

    @property
    def in_form(self) -> str:
        """Its name in forms."""
        return url_name(self.task)

    @property
    def paused_by(self) -> str:
        """Who paused it."""
        return printable(self.pause.by)


def show(page: PageContext) -> PageResponse:
    """Return the page; two round trips, one if there is nothing to show."""
    paused = page.snapshot.paused_tasks
    found, waiting = page.store.limit_states(list(paused), reads=page.reads)
    states = with_declared_values(found)
    # The aliases of a task are paused with it.
    by_task: dict[str, list[str]] = {}
    for name in sorted(paused):
        by_task.setdefault(registry.names_of(name)[0], []).append(name)
    return page.render(
        "limits.html",
        tab="limits",
        title=_("Limits"),
        limits=[
            LimitRow(limit=name, rule=rule, state=states[name]) for name, rule in page.store.config.tasks.limits.items()
        ],
        paused_tasks=[
            PausedTaskRow(
                task=task,
                pause=paused.get(task) or paused[names[0]],
                waiting=sum(waiting[name] for name in names),
            )
            for task, names in by_task.items()
        ],
    )
