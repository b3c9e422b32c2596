"""Plan: one job the demo scheduled, when it is due, and what is to become of it."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Fate(StrEnum):
    """What is to become of a job. Any may lose its worker on the way, and then runs again."""

    DONE = "runs"
    MOVED = "is moved, and runs at its new time"
    CALLED_OFF = "is called off, and never runs"
    RETRIED = "fails once, and is retried"
    DEAD = "fails at every attempt, and is a dead letter"
    KILLED = "loses its worker, and runs again"


@dataclass
class Plan:
    """Known by its task and what that is about: a closing's job is made by a worker, its id unknown."""

    task: str
    subject: str
    due: datetime
    fate: Fate = Fate.DONE
    #: For jobs of the market: the sale's number, under which the ledger keeps them.
    sale_id: int | None = None
    #: For jobs that die: how many attempts they have.
    attempts: int = 1
