"""PlannedJob: one job that the demo scheduled, its due time and its expected outcome."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class ExpectedOutcome(StrEnum):
    """What must happen to a job. Any job may lose its worker meanwhile, and then runs again."""

    DONE = "runs"
    MOVED = "is moved, and runs at its new time"
    CALLED_OFF = "is called off, and never runs"
    RETRIED = "fails once, and is retried"
    DEAD = "fails at every attempt, and is a dead letter"
    KILLED = "loses its worker, and runs again"


@dataclass
class PlannedJob:
    """A job, identified by its task and subject: a worker makes the closing's job, so its id is unknown."""

    task: str
    subject: str
    due: datetime
    expected: ExpectedOutcome = ExpectedOutcome.DONE
    #: Primary key of the sale, which identifies its jobs in the run log.
    sale_id: int | None = None
    #: For jobs that become dead letters: how many attempts they have.
    attempts: int = 1
