"""Sheet: one job as its own page shows it, for eyes that may or may not see what is hidden."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

from django.utils.translation import gettext_lazy as _

from django_delayq.admin.actions.bulk_actions import BULK_ACTIONS, BulkAction
from django_delayq.admin.arguments import DOTS, FULL, DisplayedArguments, printable
from django_delayq.admin.context import PageContext
from django_delayq.admin.errors import ErrorSummary
from django_delayq.admin.job_lists import JOB_LISTS
from django_delayq.admin.job_rows import JobLine
from django_delayq.job.job import Job, State
from django_delayq.store.queries.lookup import Found
from django_delayq.task import registry

#: State -> what it is called on screen, how that looks, and what its moment is.
_STATES = {
    State.SCHEDULED: (_("Pending"), "", _("Due")),
    State.READY: (_("Ready"), "", _("Was due")),
    State.CLAIMED: (_("Running"), "good", _("Was due")),
    State.DEAD: (_("Dead"), "bad", _("Died")),
}
_PLACES = {place.state: place for place in JOB_LISTS.values()}
#: Bytes shown of a body that cannot be read.
_HEX = 4 * 1024


class Attempt(NamedTuple):
    """One ended attempt."""

    number: int
    started_us: int | None
    #: µs from when it was due to its start, where that is known.
    lag_us: int | None
    #: µs it took, where somebody saw it end.
    took_us: int | None
    worker: str
    error_summary: ErrorSummary


class JobDetail:
    """One job in words."""

    def __init__(self, visit: PageContext, found: Found, *, reveal: bool, whole: bool) -> None:
        self._visit, self.found = visit, found
        self.reveals, self._whole = reveal, whole
        self.place = _PLACES[found.state]
        self.state, self.css_class, self.moment_label = _STATES[found.state]
        if found.lease_end_us is not None and found.lease_end_us <= visit.now_us:
            self.state, self.css_class = _("Lost"), "bad"
        self.line = JobLine.of(found, visit.config.redact)
        self.token = f"{self.line.id}.{found.moment_us}"
        self.is_known = registry.find(self.line.row.task) is not None

    @property
    def job(self) -> Job | None:
        """The job, where its body can be read."""
        return self.line.row.job

    @property
    def worker(self) -> str:
        """Who runs it."""
        return printable(self.found.worker)

    @property
    def size(self) -> int:
        """Bytes of its body."""
        return self.line.row.size

    @cached_property
    def payload(self) -> DisplayedArguments | None:
        """The arguments, where they can be read."""
        return DisplayedArguments.of(self.job, self._visit.config.redact, reveal=self.reveals) if self.job else None

    @cached_property
    def arguments(self) -> tuple[list[Any], bool]:
        """The arguments one by one, and whether they were cut."""
        return self.payload.arguments(None if self._whole else FULL) if self.payload else ([], False)

    @property
    def is_redacted(self) -> bool:
        """Whether something is hidden: a value, or bytes that nobody can read."""
        return not self.reveals and (self.payload is None or self.payload.hidden or self.key == DOTS)

    @property
    def bytes(self) -> str:
        """The beginning of a body that cannot be read."""
        return "" if self.job or not self.reveals else (self.found.stored or b"")[:_HEX].hex(" ", 4)

    @property
    def key(self) -> str:
        """What the job is unique by; made of its arguments, often, and so hidden as they are."""
        if self.job is None or self.job.key is None:
            return ""
        hidden = not self.reveals and (not self.is_known or (self.payload is not None and self.payload.hidden))
        return DOTS if hidden else printable(self.job.key)

    @property
    def attempts(self) -> Iterator[Attempt]:
        """The ended attempts that are told of, oldest first."""
        history = self.found.attempts.history
        first = max(0, self.found.attempts.ended - len(history)) + 1
        for number, entry in enumerate(history, first):
            started_us, ended_us = entry.get("started_us"), entry.get("ended_us")
            took_us = ended_us - started_us if started_us is not None and ended_us is not None else None
            due_us = entry.get("due_us")
            lag_us = max(0, started_us - due_us) if started_us and due_us else None
            yield Attempt(
                number, started_us, lag_us, took_us, printable(entry.get("worker", "")), ErrorSummary.read(**entry)
            )

    @property
    def traceback(self) -> str:
        """What is kept of the last error."""
        return printable(self.found.attempts.last_error, lines=True)

    @property
    def frames(self) -> int:
        """How many calls deep it is."""
        return f"\n{self.traceback}".count('\n  File "')

    @property
    def actions(self) -> list[BulkAction]:
        """What this person may do to it."""
        if not self._visit.may_manage:
            return []
        return [deed for deed in BULK_ACTIONS.values() if self.place.name in deed.job_lists and self._suits(deed)]

    def _suits(self, deed: BulkAction) -> bool:
        if deed.name == "edit":
            return self.job is not None and (self._visit.may_reveal or not self.is_redacted)
        return deed.name != "purge"
