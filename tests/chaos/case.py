"""Case: what the judge hears of a trial, as values.

Moments are seconds since the epoch, of the one clock that all on this machine share.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """One job that a producer was told is accepted."""

    id: str
    #: When it was to run, as Redis knew it, or a little before where that is not known.
    due: float
    max_attempts: int = 5
    #: It ends the process that runs it: it is to die, after exactly `max_attempts`.
    poison: bool = False
    #: When a cancel of it was answered True: it runs no more.
    cancelled_at: float | None = None
    #: Nobody knows whether a cancel of it was carried out.
    cancel_doubtful: bool = False
    #: When another time was given to it, and which.
    moved: tuple[float, float] | None = None
    #: Sends that may have been stored. One that was stored again after it had run may run again.
    lives: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One delivery that reached user code."""

    id: str
    attempt: int
    pid: int
    #: The worker that started this process, where it did: a suspect runs in one of its own, and dies with its worker.
    parent: int = 0
    #: When it was claimed, where that is known: its lease counts from there, and a suspect's process takes its time.
    claimed: float | None = None
    start: float
    #: None where it wrote down no end.
    end: float | None = None
    #: "done", "failed", "crashed" where it ends its process by itself, "" where it wrote down no end.
    how: str = ""
    #: When its worker knew that Redis has its acknowledgement; None where it never did.
    acknowledged: float | None = None

    @property
    def worker(self) -> int:
        """The worker that held its lease."""
        return self.parent or self.pid

    @property
    def begin(self) -> float:
        """When its lease began."""
        return self.start if self.claimed is None else self.claimed

    def __str__(self) -> str:
        ended = f"{self.end - self.start:.3f} s, {self.how}" if self.end is not None else "no end"
        if self.acknowledged is not None and self.end is not None:
            ended += f", acknowledged {self.acknowledged - self.end:.3f} s later"
        where = f"in {self.pid} of {self.parent} at {self.start:.3f}"
        return f"{self.id} #{self.attempt} {where}, claimed {self.start - self.begin:.3f} s before ({ended})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """The end of a worker: when it was started, right before it was killed, and when it was surely gone.

    A kill takes effect some milliseconds later on a busy machine, in which a job can begin.
    """

    pid: int
    born: float
    at: float
    gone: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A time in which a process, or all of them (pid 0), could not reach Redis or could not run."""

    begin: float
    end: float
    pid: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Dead:
    """A dead letter at the end."""

    id: str
    ended: int
    #: How each of its attempts ended, oldest first.
    endings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Everything the judge hears."""

    promises: Sequence[Promise]
    runs: Sequence[Run]
    dead: Sequence[Dead] = ()
    deaths: Sequence[Death] = ()
    troubles: Sequence[Trouble] = ()
    #: Times in which connections were cut, and at once made anew.
    cuts: Sequence[Trouble] = ()
    #: Ids that may or may not have been stored.
    doubtful: Collection[str] = ()
    lease: float = 2.0
