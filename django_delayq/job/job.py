"""Job, Claim, DeadLetter, State: the frozen values that travel through the engine.

They do no I/O and know no clock. Changing one means `dataclasses.replace`.
"""

from dataclasses import dataclass, field
from enum import IntFlag, StrEnum
from math import inf
from typing import Any

from django_delayq.clock import SECOND_US
from django_delayq.job.attempts import AttemptHistory
from django_delayq.job.ids import to_text
from django_delayq.job.retry import RetryPolicy
from django_delayq.job.value import fast_dataclass

#: Of a task that names none. Bodies leave it out: it stays what it is.
DEFAULT_QUEUE = "default"
#: Priorities a job may have; larger runs first.
MIN_PRIORITY, MAX_PRIORITY = -100, 100
#: Containers within containers that arguments and results may have.
MAX_DEPTH = 64
#: Bodies above this are flagged large: 64 of 256 KiB in one exchange block Redis for 45 ms.
LARGE_BODY = 32 * 1024
#: Time between the soft and the default hard limit of a task.
HARD_TIMEOUT_MARGIN_US = 10 * SECOND_US


class State(StrEnum):
    """Where a job is."""

    UNSENT = "unsent"
    SCHEDULED = "scheduled"
    READY = "ready"
    CLAIMED = "claimed"
    DEAD = "dead"
    #: Only as long as a result is kept.
    DONE = "done"
    CANCELLED = "cancelled"
    GONE = "gone"


class Flag(IntFlag):
    """What is known of a job whose body is not parsed: the last byte of the member, and a byte of the body's head."""

    HAS_EXTRAS = 1  # has a record in `job_extras`
    DELAYED = 2  # by its caller: due ahead of ordinary jobs of its priority
    LARGE = 4  # body over LARGE_BODY
    KEEPS_RESULT = 8  # its result is kept
    DJANGO = 16  # made by Django's own @task, whose manners it has


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskKind:
    """What the two kinds of task differ in: those of `@delayed_task`, and those of Django's own `@task`."""

    #: What the flags of its jobs have in common.
    flags: Flag
    #: The policy of a body of format 1 that stores none. It stays what it is when the default of new jobs changes.
    retry: RetryPolicy
    #: A job waits for the next deploy if its function is unknown or does not take its arguments; else it dies at once.
    waits_for_code: bool
    #: A run is shown to start when the job is claimed; else when its code begins.
    starts_when_claimed: bool
    #: Its tasks have hooks that are called even if no receiver listens to our signals.
    has_hooks: bool


DELAYED_TASK = TaskKind(
    flags=Flag(0),
    retry=RetryPolicy(max_attempts=5, base=2, cap=3_600, on_error=True),
    waits_for_code=True,
    starts_when_claimed=False,
    has_hooks=False,
)
DJANGO_TASK = TaskKind(
    flags=Flag.DJANGO,
    # An exception is final, as Django's contract has it; a crash is not.
    retry=RetryPolicy(max_attempts=3, base=2, cap=3_600, on_error=False),
    waits_for_code=False,
    starts_when_claimed=True,
    has_hooks=True,
)

#: An operation on an enum costs 0.8 µs, one on its number next to nothing.
_DELAYED = Flag.DELAYED.value


def due_of_rank(rank: int, flags: int, *, due_first_us: int) -> int:
    """Read the due time (µs, to the millisecond) back out of a score in `ready`."""
    time_us = rank % 2**45 * 1_000
    return time_us + due_first_us // 1_000 * 1_000 if flags & _DELAYED else time_us


@fast_dataclass
class Job:
    """One promise to run a task."""

    raw_id: bytes
    shard: int
    task: str
    queue: str
    priority: int = 0
    # Not in the repr: jobs are logged and shown in error reports.
    args: list[Any] = field(default_factory=list, repr=False)
    kwargs: dict[str, Any] = field(default_factory=dict, repr=False)
    retry: RetryPolicy = RetryPolicy()
    #: Seconds as µs after which TaskTimeout is raised in the task; None: no limit.
    timeout_us: int | None = None
    #: µs after which the run is given up; None: `timeout_us` + 10 s, or no limit.
    hard_timeout_us: int | None = None
    #: What the job is unique by, among the jobs of its task.
    key: str | None = None
    flags: Flag = Flag(0)
    #: Made by Django's own @task, whose manners it has.
    django: bool = False
    #: µs that its result is kept after its end; None: it keeps none.
    result_ttl_us: int | None = None
    #: The `run_after` of a task of Django's, µs since the epoch.
    run_after_us: int | None = None
    #: Alias in TASKS where that is not the one that shares DELAYQ's store.
    backend: str | None = None

    @property
    def id(self) -> str:
        """The id as users see it."""
        return to_text(self.raw_id, self.shard)

    @property
    def kind(self) -> TaskKind:
        """What is particular to its kind of task."""
        return DJANGO_TASK if self.django else DELAYED_TASK

    @property
    def member(self) -> bytes:
        """Id, priority byte, flags byte: 14 bytes, fixed for the job's life."""
        return self.raw_id + bytes((MAX_PRIORITY - self.priority, self.flags))

    @property
    def give_up_us(self) -> int | None:
        """The hard limit in force."""
        if self.hard_timeout_us is not None or self.timeout_us is None:
            return self.hard_timeout_us
        return self.timeout_us + HARD_TIMEOUT_MARGIN_US


@fast_dataclass
class Claim:
    """A ready job taken under a lease."""

    #: Member and token: 30 bytes, what `leases` holds and every settling step names.
    lease: bytes
    shard: int
    queue: str
    #: The job's score in `ready`, needed to give it back to its old place.
    rank: int
    #: When it was due, µs since the epoch, to the millisecond.
    due_us: int
    #: None where the body cannot be read; `fault` says why.
    job: Job | None
    fault: Exception | None = None
    attempts: AttemptHistory
    #: µs since the epoch, Redis's clock, when the claim was made.
    claimed_us: int
    #: `clock.lease_time()` before the claim was sent, maybe long before Redis made it: the lease is counted from here.
    sent_at: float
    #: time.monotonic() when its answer was read: all else is counted from here. Redis made it in between, mostly just
    #: before.
    taken_at: float

    @property
    def raw_id(self) -> bytes:
        """The job's id."""
        return self.lease[:12]

    @property
    def id(self) -> str:
        """The job's id as users see it."""
        return to_text(self.lease[:12], self.shard)

    @property
    def attempt(self) -> int:
        """Number of the attempt under way: 1, 2, 3 …"""
        return self.attempts.ended + 1

    @property
    def hard_limit(self) -> float:
        """Seconds of running after which it is given up; infinite where the job has no hard limit."""
        limit_us = self.job.give_up_us if self.job else None
        return inf if limit_us is None else limit_us / SECOND_US


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A job that will not be tried again, with its history."""

    raw_id: bytes
    shard: int
    #: µs since the epoch, Redis's clock.
    died_us: int
    job: Job | None
    attempts: AttemptHistory

    @property
    def id(self) -> str:
        """The job's id as users see it."""
        return to_text(self.raw_id, self.shard)
