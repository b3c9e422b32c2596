"""Job contents: what a person may see of the arguments, the context and the options of a job.

The jobs of a recurring schedule have the same ones.
"""

from functools import cached_property
from re import Pattern
from typing import Any

from django_delayq.display.arguments import DOTS, FULL, DisplayedArguments, displayed_context, displayed_key
from django_delayq.display.limits import limits_text
from django_delayq.display.retry import retry_text
from django_delayq.display.text import pretty, printable, span_text
from django_delayq.job.job import Job


class JobContents:
    """The contents of one job; all of it is empty if its body cannot be read."""

    def __init__(self, job: Job | None, hide: Pattern[str], *, reveal: bool, whole: bool) -> None:
        self.job, self._hide, self.reveals, self._whole = job, hide, reveal, whole

    @cached_property
    def displayed(self) -> DisplayedArguments | None:
        """The arguments; None if the body cannot be read."""
        return DisplayedArguments.of(self.job, self._hide, reveal=self.reveals) if self.job else None

    @cached_property
    def arguments(self) -> tuple[list[Any], bool]:
        """The arguments one by one, and whether they are truncated."""
        return self.displayed.arguments(None if self._whole else FULL) if self.displayed else ([], False)

    @property
    def context(self) -> str:
        """The context that middlewares put in, as text."""
        context = displayed_context(self.job, self._hide, reveal=self.reveals) if self.job else {}
        return pretty(context) if context else ""

    @property
    def is_redacted(self) -> bool:
        """Whether anything is hidden: a value, the key, or an unreadable body."""
        hides = self.displayed is None or self.displayed.hidden or self.key == DOTS
        return not self.reveals and (hides or DOTS in self.context or DOTS in self.limits)

    @property
    def key(self) -> str:
        """The unique key as this person may see it."""
        return displayed_key(self.job, self._hide, reveal=self.reveals) if self.job else ""

    @property
    def tenant(self) -> str:
        """The name of its tenant; empty without one."""
        return printable(self.job.tenant) if self.job and self.job.tenant else ""

    @cached_property
    def limits(self) -> str:
        """Its limits as this person may see them; empty without any."""
        return limits_text(self.job, self._hide, reveal=self.reveals) if self.job else ""

    @property
    def retries(self) -> str:
        """The retry policy in words."""
        return retry_text(self.job.retry) if self.job else ""

    @property
    def timeout(self) -> str:
        """The time limit of a run; empty without one."""
        return span_text(self.job.timeout_us) if self.job and self.job.timeout_us else ""

    @property
    def hard_timeout(self) -> str:
        """The limit after which a run is ended by force, also the default one; empty without one."""
        return span_text(self.job.hard_limit_us) if self.job and self.job.hard_limit_us else ""
