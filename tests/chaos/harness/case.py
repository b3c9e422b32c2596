"""Case: the recorded facts of one chaos test, as values that the checker reads.

Times are seconds since the epoch. All processes are on one machine, so they share one clock.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedJob:
    """A job that the store accepted, and what may happen to it."""

    id: str
    #: The due time in Redis, or a time shortly before it if the exact one is unknown.
    due: float
    max_attempts: int = 5
    #: The job ends its process in each attempt, and must be dead after exactly `max_attempts`.
    poison: bool = False
    #: When a cancel returned True. The job must not run after that.
    cancelled_at: float | None = None
    #: A cancel failed with an unknown outcome.
    cancel_doubtful: bool = False
    #: When the job was rescheduled, and its new due time.
    moved: tuple[float, float] | None = None
    #: How many sends may have been stored. A job that is stored again after its run may run again.
    sends: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a job: one delivery that reached user code."""

    id: str
    attempt: int
    pid: int
    #: The worker that started this process. A suspected crasher runs in its own process, which dies with its worker.
    parent: int = 0
    #: When the job was claimed, if that is known. The lease counts from the claim, and a new process starts slowly.
    claimed: float | None = None
    start: float
    #: None if the run recorded no end.
    end: float | None = None
    #: "done", "failed", "crashed" if the job ends its own process, or "" if the run recorded no end.
    how: str = ""
    #: When the worker received the reply to its acknowledgement; None if it never did.
    acknowledged: float | None = None

    @property
    def worker(self) -> int:
        """The id of the worker that held the lease."""
        return self.parent or self.pid

    @property
    def begin(self) -> float:
        """When the lease began."""
        return self.start if self.claimed is None else self.claimed

    def __str__(self) -> str:
        ended = f"{self.end - self.start:.3f} s, {self.how}" if self.end is not None else "no end"
        if self.acknowledged is not None and self.end is not None:
            ended += f", acknowledged {self.acknowledged - self.end:.3f} s later"
        where = f"in {self.pid} of {self.parent} at {self.start:.3f}"
        return f"{self.id} #{self.attempt} {where}, claimed {self.start - self.begin:.3f} s before ({ended})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """The end of a worker: when it started, a time right before the kill, and a time when it has certainly ended.

    On a busy machine a kill takes effect some milliseconds later, and a job can start in between.
    """

    pid: int
    started_at: float
    at: float
    gone: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """A period in which one process, or all of them (pid 0), could not run or could not reach Redis."""

    begin: float
    end: float
    pid: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Dead:
    """A dead letter at the end of the test."""

    id: str
    ended: int
    #: How each of its attempts ended, oldest first.
    endings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Everything that the checker reads."""

    accepted_jobs: Sequence[AcceptedJob]
    runs: Sequence[Run]
    dead: Sequence[Dead] = ()
    deaths: Sequence[Death] = ()
    outages: Sequence[Outage] = ()
    #: Periods in which connections were cut. Processes could reconnect at once.
    cuts: Sequence[Outage] = ()
    #: Ids of jobs that may or may not have been stored.
    doubtful: Collection[str] = ()
    lease: float = 2.0
