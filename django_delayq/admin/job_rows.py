"""Rows: jobs as a list shows them, one line each."""

from dataclasses import dataclass
from functools import cached_property
from re import Pattern
from typing import Self

from django.utils.translation import gettext

from django_delayq.admin.arguments import DisplayedArguments, printable, short
from django_delayq.admin.errors import ErrorSummary
from django_delayq.job.ids import created_us
from django_delayq.job.job import State
from django_delayq.store.queries.job_pages import JobRow
from django_delayq.store.queries.lookup import Found


@dataclass(frozen=True)
class JobLine:
    """One row of a list, in words."""

    row: JobRow
    hide: Pattern[str]
    #: The address of its own page.
    url: str = ""

    @classmethod
    def of(cls, found: Found, hide: Pattern[str]) -> Self:
        """Return the line of a job that was looked up by its id."""
        stored = found.stored or b""
        return cls(
            JobRow(found.raw_id, found.shard, found.state, found.moment_us, stored, len(stored), found.attempts), hide
        )

    @property
    def id(self) -> str:
        """The job's whole id."""
        return self.row.id

    @property
    def short_id(self) -> str:
        """Its end: the beginning is the time, and alike in neighbours."""
        return f"…{self.row.id[18:]}"

    @property
    def token(self) -> str:
        """What a form says of the row: which job, and as of when."""
        return f"{self.row.id}.{self.moment_us}"

    @property
    def moment_us(self) -> int:
        """When it is due, was due, or died."""
        return self.row.moment_us

    @property
    def started_us(self) -> int | None:
        """When a running one was taken."""
        return self.row.claim_record.claimed_us or None

    @property
    def worker(self) -> str:
        """Who runs it."""
        return printable(self.row.worker)

    @property
    def created_us(self) -> int:
        """When it was enqueued."""
        return created_us(self.row.raw_id)

    @property
    def task(self) -> str:
        """The function's whole name, or nothing where not even that can be read."""
        return printable(self.row.task)

    @property
    def function(self) -> str:
        """The function's own name."""
        return printable(short(self.row.task)) or "?"

    @property
    def queue(self) -> str:
        """The queue's name."""
        return printable(self.row.queue)

    @cached_property
    def _payload(self) -> DisplayedArguments | None:
        return DisplayedArguments.of(self.row.job, self.hide) if self.row.job else None

    @property
    def arguments(self) -> str:
        """The arguments in one line, with what must be hidden hidden."""
        return self._payload.line(bare=True) if self._payload else ""

    @property
    def call(self) -> str:
        """The same as a call of the function."""
        return self._payload.line() if self._payload else f"{self.function}(…)"

    @property
    def fault(self) -> str:
        """Why the arguments cannot be shown."""
        return "" if self.row.job else printable(self.row.fault)

    @property
    def attempts_text(self) -> str:
        """`3/5`: the try that comes, or the last one of the dead, and how many there may be."""
        ended, job = self.row.attempts.ended, self.row.job
        number = ended if self.row.state is State.DEAD else ended + 1
        return f"{number}/{job.retry.max_attempts if job else '?'}"

    @property
    def waits_again(self) -> bool:
        """Whether it failed before and waits for its next try."""
        return bool(self.row.attempts.ended)

    @property
    def error_summary(self) -> ErrorSummary:
        """What its last try ended with."""
        return ErrorSummary.of(self.row.attempts)

    @property
    def label(self) -> str:
        """What the row's checkbox is called."""
        return gettext("Select %(function)s %(id)s") % {"function": self.function, "id": self.id}
