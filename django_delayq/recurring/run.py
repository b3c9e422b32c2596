"""Run: what became of a job of a recurring schedule."""

from enum import IntEnum
from typing import NamedTuple


class RunOutcome(IntEnum):
    """How a job of a schedule ended; the numbers are stored."""

    DONE = 1
    #: It is a dead letter.
    FAILED = 2
    CANCELLED = 3
    EXPIRED = 4
    #: It did not begin, because another one ran, or because of a limit.
    SKIPPED = 5


class Run(NamedTuple):
    """One job of a schedule that has ended."""

    outcome: RunOutcome
    #: For how many ms its last attempt ran, within 0.1 %; 0 if it did not begin.
    took_ms: int

    @property
    def has_begun(self) -> bool:
        """Whether it began: a cancelled one may have been stopped while it ran."""
        return self.took_ms > 0 or self.outcome in (RunOutcome.DONE, RunOutcome.FAILED)
