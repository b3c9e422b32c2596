"""CurrentJob: what a running task can ask about its job."""

from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime

from django_delayq.clock import moment
from django_delayq.job.job import Claim


@dataclass(frozen=True, slots=True)
class CurrentJob:
    """The job that this code runs for."""

    _claim: Claim

    @property
    def id(self) -> str:
        """The job's id."""
        return self._claim.id

    @property
    def attempt(self) -> int:
        """Number of this attempt: 1, 2, 3 …"""
        return self._claim.attempt

    @property
    def recovered(self) -> bool:
        """Whether the last attempt ended in a crash or a lost lease: part of its work may be done."""
        return self._claim.attempts.crash_suspected

    @property
    def due(self) -> datetime:
        """When the job was due; aware, UTC, to the millisecond."""
        return moment(self._claim.due_us)

    @property
    def queue(self) -> str:
        """The queue it was taken from."""
        return self._claim.queue

    @property
    def key(self) -> str | None:
        """What the job is unique by, if anything."""
        return self._claim.job.key if self._claim.job else None


_current: ContextVar[Claim | None] = ContextVar("django_delayq.task.context", default=None)


def set_current_claim(claim: Claim) -> None:
    """Make the claim the current one of this context."""
    _current.set(claim)


def current_job() -> CurrentJob | None:
    """Return the job this code runs for, or None where the task was called as a plain function."""
    claim = _current.get()
    return CurrentJob(claim) if claim else None
