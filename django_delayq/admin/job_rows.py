"""Jobs as a list shows them, one line each."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from re import Pattern
from typing import NamedTuple

from django.utils.translation import gettext

from django_delayq.admin.errors import ErrorSummary, outcome_name
from django_delayq.display.arguments import DisplayedArguments
from django_delayq.display.limits import parked_text
from django_delayq.display.text import printable, short
from django_delayq.job.ids import created_us
from django_delayq.job.job import State
from django_delayq.store.queries.job_pages import JobRow


class ProgressBar(NamedTuple):
    """The progress of a running job."""

    fraction: float
    note: str

    @property
    def value(self) -> str:
        """The fraction as HTML takes it, in every language."""
        return f"{self.fraction:.4f}"

    @property
    def percent(self) -> str:
        """The fraction for people; 100 only of what is done."""
        return f"{int(self.fraction * 100)} %"


@dataclass(frozen=True)
class JobLine:
    """One job in a list."""

    row: JobRow
    hide: Pattern[str]
    #: The address of the job's own page.
    url: str = ""
    #: The time of the page, Redis's clock, if it shows which jobs are overdue.
    now_us: int = 0
    #: The names of the declared limits.
    limits: Collection[str] = ()

    @property
    def short_id(self) -> str:
        """The end of the id; the beginning is the creation time, which neighbours share."""
        return f"…{self.row.id[18:]}"

    @property
    def token(self) -> str:
        """The value of the row's checkbox: the job, and the moment that the person saw."""
        return f"{self.row.id}.{self.row.moment_us}"

    @property
    def worker(self) -> str:
        """The worker that runs it."""
        return printable(self.row.worker)

    @cached_property
    def progress(self) -> "ProgressBar | None":
        """How far its running attempt is, if it reported any."""
        progress = self.row.progress
        return ProgressBar(progress.fraction, printable(progress.note)) if progress else None

    @property
    def created_us(self) -> int:
        """When it was enqueued."""
        return created_us(self.row.raw_id)

    @property
    def task(self) -> str:
        """The task's dotted name; empty if it cannot be read."""
        return printable(self.row.task)

    @property
    def task_name(self) -> str:
        """The task's name without its module."""
        return printable(short(self.row.task)) or "?"

    @property
    def queue(self) -> str:
        """The queue's name."""
        return printable(self.row.queue)

    @cached_property
    def _displayed(self) -> DisplayedArguments | None:
        return DisplayedArguments.of(self.row.job, self.hide) if self.row.job else None

    @property
    def arguments(self) -> str:
        """The arguments in one line, with hidden values replaced."""
        return self._displayed.line(bare=True) if self._displayed else ""

    @property
    def call(self) -> str:
        """The same as a call of the task."""
        return self._displayed.line() if self._displayed else f"{self.task_name}(…)"

    @property
    def fault(self) -> str:
        """Why the arguments cannot be shown."""
        return "" if self.row.job else printable(self.row.fault)

    @property
    def attempts_text(self) -> str:
        """`3/5`: the next attempt, or the last one of a failed job, and the maximum, if there is one."""
        ended, job = self.row.attempts.ended, self.row.job
        number = ended if self.row.state is State.DEAD else ended + 1
        if job is None:
            return f"{number}/?"
        return str(number) if job.retry.max_attempts is None else f"{number}/{job.retry.max_attempts}"

    @property
    def expires_us(self) -> int | None:
        """When it expires if it has not begun by then."""
        return self.row.expires_us

    @property
    def overdue(self) -> bool:
        """Whether it waits although its expiry is over: a worker ends it when its turn comes."""
        return self.row.is_overdue(self.now_us)

    @property
    def waits_again(self) -> bool:
        """Whether an attempt has failed and it waits for another."""
        return bool(self.row.attempts.ended)

    @property
    def waits_for_code(self) -> str:
        """What it waits for, if no worker could run it so far; else ""."""
        return outcome_name(self.row.waiting_for)

    @cached_property
    def parked(self) -> str:
        """What it waits for, if a limit or the pause of its task keeps it from beginning; else ""."""
        return parked_text(self.row, self.hide, self.limits)

    @property
    def error_summary(self) -> ErrorSummary:
        """The error of its last attempt."""
        return ErrorSummary.of(self.row.attempts)

    @property
    def label(self) -> str:
        """The label of the row's checkbox."""
        return gettext("Select %(task)s %(id)s") % {"task": self.task_name, "id": self.row.id}
