"""Schedules: what people see of recurring schedules in the admin and on a terminal."""

from dataclasses import dataclass
from itertools import chain, islice

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_delayq.display.text import printable, span_text
from django_delayq.recurring.cron import Cron
from django_delayq.recurring.rule import Every, Rule, occurrences
from django_delayq.recurring.schedule import Schedule
from django_delayq.store.schedules.stored_schedule import ScheduleState, StoredSchedule

#: How many of its next jobs are shown of one schedule.
_UPCOMING = 10
#: Values of `overlap` and `catch_up` -> what they mean.
OVERLAPS = {
    "skip": gettext_lazy("skip: the new job is skipped"),
    "wait": gettext_lazy("wait: the new job waits; further ones are skipped"),
    "stop": gettext_lazy("stop: the running job is asked to stop, and the new one waits for that"),
    "allow": gettext_lazy("allow: both run"),
}
CATCH_UPS = {
    "last": gettext_lazy("last: one job for all missed occurrences"),
    "none": gettext_lazy("none: a job that is too late does not begin"),
    "all": gettext_lazy("all: a job for each missed occurrence"),
}


def rule_text(rule: Rule) -> str:
    """Return `every 5 min`, or the cron fields and the time zone: `0 9 * * mon-fri (Europe/Berlin)`."""
    if isinstance(rule, Every):
        return _("every %s") % span_text(rule.interval_us)
    return f"{rule.fields} ({rule.zone.key})" if isinstance(rule, Cron) else rule.text


@dataclass(frozen=True, slots=True)
class DisplayedSchedule:
    """One recurring schedule as it was read at a moment (µs since the epoch, Redis's clock)."""

    stored: StoredSchedule
    now_us: int

    @property
    def schedule(self) -> Schedule | None:
        """The schedule; None if this process cannot read it."""
        return self.stored.definition.schedule if self.stored.definition else None

    @property
    def name(self) -> str:
        """Its name among those of its task; empty if it cannot be read."""
        return printable(self.schedule.name) if self.schedule else ""

    @property
    def task(self) -> str:
        """The name of its task; empty if it cannot be read."""
        return printable(self.stored.definition.job.task) if self.stored.definition else ""

    @property
    def rule(self) -> str:
        """Its rule in words; empty if it cannot be read."""
        return printable(rule_text(self.schedule.rule)) if self.schedule else ""

    @property
    def state(self) -> ScheduleState:
        """What it does now."""
        return self.stored.state(self.now_us)

    @property
    def fault(self) -> str:
        """Why it cannot be read; empty if it can."""
        if self.stored.fault is not None:
            return printable(str(self.stored.fault))
        return _("the dispatcher that looked at it last cannot read it") if self.stored.is_unreadable else ""

    @property
    def next_us(self) -> int | None:
        """When its waiting job is due, or the next one will be; None if there is none."""
        return self.stored.next_due_us(self.now_us)

    @property
    def paused_by_failures(self) -> bool:
        """Whether it paused itself after failures in a row."""
        record = self.stored.record
        return self.stored.is_paused and 0 < record.pause_after <= record.failures

    @property
    def upcoming(self) -> list[int]:
        """The due times of its next ten jobs, as if it were not paused; fewer if it ends."""
        if self.schedule is None:
            return []
        last_us = self.stored.record.occurrence_us
        waiting = [last_us] if self.stored.planted else []
        # Occurrences between the waiting one and now have no jobs of their own.
        following = occurrences(self.schedule, after_us=max(last_us, self.now_us))
        return [self.schedule.due_us(each) for each in islice(chain(waiting, following), _UPCOMING)]
