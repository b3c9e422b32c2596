"""Rows: recurring schedules as lists and pages show them."""

from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext_lazy as _

from django_delayq.admin.page import PageContext
from django_delayq.display.schedules import DisplayedSchedule
from django_delayq.display.text import printable, short
from django_delayq.recurring.cron import Cron
from django_delayq.recurring.run import Run, RunOutcome
from django_delayq.store.schedules.stored_schedule import ScheduleState, StoredSchedule

#: State -> how pages name it, and the class of its chip.
STATES: dict[ScheduleState, tuple[Any, str]] = {
    ScheduleState.WAITING: (_("waiting"), ""),
    ScheduleState.RUNNING: (_("running"), "good"),
    ScheduleState.PAUSED: (_("paused"), "warn"),
    ScheduleState.ENDED: (_("ended"), ""),
    ScheduleState.UNREADABLE: (_("unreadable"), "bad"),
}
_OUTCOMES: dict[RunOutcome, tuple[Any, str]] = {
    RunOutcome.DONE: (_("done"), "good"),
    RunOutcome.FAILED: (_("failed"), "bad"),
    RunOutcome.CANCELLED: (_("cancelled"), "warn"),
    RunOutcome.EXPIRED: (_("expired"), ""),
    RunOutcome.SKIPPED: (_("skipped"), ""),
}


@dataclass(frozen=True, slots=True)
class RunRow:
    """What became of one job."""

    run: Run

    @property
    def outcome(self) -> str:
        """How it ended, in a word."""
        return str(_OUTCOMES[self.run.outcome][0])

    @property
    def css_class(self) -> str:
        """The class of its chip."""
        return _OUTCOMES[self.run.outcome][1]

    @property
    def took_us(self) -> int | None:
        """How long it ran; None if it did not begin."""
        return self.run.took_ms * 1_000 if self.run.has_begun else None


@dataclass(frozen=True, slots=True)
class ScheduleRow(DisplayedSchedule):
    """One schedule."""

    #: The address of its own page.
    url: str = ""

    @classmethod
    def of(cls, page: PageContext, stored: StoredSchedule) -> "ScheduleRow":
        """Return the row of a schedule."""
        return cls(stored, page.now_us, page.url("recurring_schedule", stored.text_id))

    @property
    def label(self) -> str:
        """Its name, or its id if it cannot be read."""
        return self.name or self.stored.text_id

    @property
    def fields(self) -> str:
        """Its cron fields; empty if it has an interval."""
        rule = self.schedule.rule if self.schedule else None
        return printable(rule.fields) if isinstance(rule, Cron) else ""

    @property
    def zone(self) -> str:
        """The time zone of its cron fields; empty if it has an interval."""
        return self.schedule.zone.key if self.schedule and self.schedule.zone else ""

    @property
    def task_name(self) -> str:
        """The name of its task without the module."""
        return short(self.task)

    @property
    def state_text(self) -> str:
        """What it does now, in a word."""
        return str(STATES[self.state][0])

    @property
    def css_class(self) -> str:
        """The class of the chip of its state."""
        return STATES[self.state][1]

    @property
    def also_runs(self) -> bool:
        """Whether a job of it runs, although its state is another one."""
        return self.stored.running is not None and self.state is not ScheduleState.RUNNING

    @property
    def failures(self) -> int:
        """How many of its jobs failed in a row."""
        return self.stored.record.failures

    @property
    def runs(self) -> list[RunRow]:
        """What became of its last jobs, the latest first."""
        return list(map(RunRow, self.stored.runs))

    @property
    def last(self) -> RunRow | None:
        """What became of its last job; None before the first one ended."""
        return next(iter(self.runs), None)

    @property
    def last_end_us(self) -> int | None:
        """When that job ended."""
        return self.stored.record.last_end_us or None
