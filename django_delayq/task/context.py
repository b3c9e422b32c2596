"""Context: the job that the running code belongs to."""

from contextvars import ContextVar
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django_delayq.clock import moment
from django_delayq.job.job import Claim


@dataclass(frozen=True, slots=True)
class CurrentJob:
    """The job of the running task."""

    _claim: Claim

    @property
    def id(self) -> str:
        """The job's id."""
        return self._claim.id

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self._claim.attempt

    @property
    def recovered(self) -> bool:
        """Whether a crash, a lost lease or the stop of a worker cut the last run off: part of its work may be done."""
        return self._claim.attempts.recovered

    @property
    def due(self) -> datetime:
        """When the job was due; aware, UTC, to the millisecond."""
        return moment(self._claim.due_us)

    @property
    def queue(self) -> str:
        """The queue that it was claimed from."""
        return self._claim.queue

    @property
    def key(self) -> str | None:
        """The unique key of the job, if it has one."""
        return self._claim.job.key if self._claim.job else None

    @property
    def context(self) -> dict[str, Any]:
        """A copy of what middlewares put into the job at the enqueue."""
        return deepcopy(self._claim.job.context or {}) if self._claim.job else {}


_current: ContextVar[Claim | None] = ContextVar("django_delayq.task.context", default=None)


def set_current_claim(claim: Claim) -> None:
    """Set the claim of this context."""
    _current.set(claim)


def current_job() -> CurrentJob | None:
    """Return the job of the running task, or None if the task was called as a plain function."""
    claim = _current.get()
    return CurrentJob(claim) if claim else None
