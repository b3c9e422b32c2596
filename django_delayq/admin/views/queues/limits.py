"""Limits: the rule and the jobs of each limit that the project declares, and the tasks that are paused."""

from dataclasses import dataclass

from django.utils.translation import gettext as _

from django_delayq.admin.filters import url_name
from django_delayq.admin.page import PageContext, PageResponse
from django_delayq.conf.limit_rules import LimitRule
from django_delayq.display.limits import names_with_values, rule_text
from django_delayq.display.text import printable
from django_delayq.store.queries.limits import LimitState
from django_delayq.store.queries.snapshot import Pause


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRow:
    """One limit."""

    limit: str
    rule: LimitRule
    state: LimitState
    #: Whether each of its values has a state of its own.
    by_value: bool

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
    """Return the page; two round trips a shard, one if there is nothing to show."""
    paused = dict(sorted(page.snapshot.paused_tasks.items()))
    states, waiting = page.store.limit_states(list(paused))
    with_values = names_with_values() if states else set()
    return page.render(
        "limits.html",
        tab="limits",
        title=_("Limits"),
        limits=[
            LimitRow(limit=name, rule=rule, state=states[name], by_value=states[name].by_value or name in with_values)
            for name, rule in page.store.config.tasks.limits.items()
        ],
        paused_tasks=[PausedTaskRow(task=task, pause=pause, waiting=waiting[task]) for task, pause in paused.items()],
    )
