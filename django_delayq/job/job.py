"""Job, Claim, State: the frozen values of a job's life.

They do no I/O and read no clock. Changing one means `dataclasses.replace`.
"""

from dataclasses import dataclass, field, replace
from enum import IntFlag, StrEnum
from math import inf
from typing import Any, NamedTuple

from django_delayq.clock import LATEST_US, SECOND_US
from django_delayq.job.attempts import NO_ATTEMPTS, AttemptHistory
from django_delayq.job.ids import to_text
from django_delayq.job.retry import RetryPolicy
from django_delayq.job.value import fast_dataclass

#: The queue of a task that names none. Bodies leave it out, so it can never change.
DEFAULT_QUEUE = "default"
#: A larger priority runs first.
MIN_PRIORITY, MAX_PRIORITY = -100, 100
#: Levels of nested containers that arguments and results may have.
MAX_DEPTH = 64
#: Most bytes of JSON in a job's context.
MAX_CONTEXT = 4 * 1024
#: Bodies with more bytes get the LARGE flag: 64 of 256 KiB in one exchange block Redis for 45 ms.
LARGE_BODY = 32 * 1024
#: Time between the soft and the default hard limit of a task.
HARD_TIMEOUT_MARGIN_US = 10 * SECOND_US


class State(StrEnum):
    """The state of a job; each state but UNSENT and GONE is a place in Redis."""

    UNSENT = "unsent"
    SCHEDULED = "scheduled"
    READY = "ready"
    CLAIMED = "claimed"
    DEAD = "dead"
    #: Only while its result is kept, as for CANCELLED, EXPIRED and DROPPED.
    DONE = "done"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    DROPPED = "dropped"
    GONE = "gone"


class Flag(IntFlag):
    """What scripts know of a job without parsing its body: the last byte of the member, and a byte of the head."""

    HAS_EXTRAS = 1  # has a record in `job_extras`
    DELAYED = 2  # delayed by its caller: claimed before other jobs of its priority
    LARGE = 4  # its body is larger than LARGE_BODY
    KEEPS_RESULT = 8  # its result is kept
    DJANGO = 16  # made by Django's own @task; see TaskKind
    EXPIRES = 32  # has an expiry, unless a retry of its dead letter left it out
    LIMITED = 64  # has limits, or a recurring schedule, in its record in `job_extras`


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskKind:
    """The differences between tasks of `@delayed_task` and tasks of Django's own `@task`."""

    #: Flags that all of its jobs have.
    flags: Flag
    #: The policy of a body of format 1 that stores none. It must not change when the default of new jobs does.
    retry: RetryPolicy
    #: If its function does not take its arguments, a job waits for the next deploy; else it dies at once.
    waits_on_mismatch: bool
    #: `started_at` is when the job is claimed; else when its code begins.
    starts_when_claimed: bool
    #: Its tasks have hooks that are called even if our signals have no receiver.
    has_hooks: bool


DELAYED_TASK = TaskKind(
    flags=Flag(0),
    retry=RetryPolicy(max_attempts=5, base=2, cap=3_600, on_error=True),
    waits_on_mismatch=True,
    starts_when_claimed=False,
    has_hooks=False,
)
DJANGO_TASK = TaskKind(
    flags=Flag.DJANGO,
    # By Django's contract an exception is final; a crash is not.
    retry=RetryPolicy(max_attempts=3, base=2, cap=3_600, on_error=False),
    waits_on_mismatch=False,
    starts_when_claimed=True,
    has_hooks=True,
)

#: An operation on an enum costs 0.8 µs, one on a number almost nothing.
_HAS_EXTRAS, _DELAYED, _LIMITED = Flag.HAS_EXTRAS.value, Flag.DELAYED.value, Flag.LIMITED.value


def hard_limit_us(timeout_us: int | None, hard_timeout_us: int | None) -> int | None:
    """Return after how many µs a run with these limits is ended by force; None: never."""
    if hard_timeout_us is not None or timeout_us is None:
        return hard_timeout_us
    return timeout_us + HARD_TIMEOUT_MARGIN_US


def due_of_rank(rank: int, flags: int, *, due_first_us: int) -> int:
    """Return the due time (µs, to the millisecond) from a score in `ready`."""
    time_us = rank % 2**45 * 1_000
    return time_us + due_first_us // 1_000 * 1_000 if flags & _DELAYED else time_us


@fast_dataclass
class Expiry:
    """Until when a job may begin. A worker ends a job that would begin later."""

    #: µs since the epoch. It is fixed when the job is sent, and by `reschedule` and `requeue`.
    moment_us: int
    #: µs from the due time to the moment; None if the caller gave the moment, which then never moves.
    span_us: int | None = None
    #: An expired job becomes a dead letter; otherwise it ends as expired.
    dead: bool = False

    def from_due(self, due_us: int) -> "Expiry":
        """Return the expiry of the same job with this due time (µs since the epoch)."""
        return self if self.span_us is None else replace(self, moment_us=min(due_us + self.span_us, LATEST_US))


class LimitUse(NamedTuple):
    """A limit under which a job runs."""

    #: Its name in DELAYQ["LIMITS"].
    name: str
    #: What it is kept for, such as an account; None: for all jobs together.
    value: str | None = None


class Occurrence(NamedTuple):
    """The occurrence of a recurring schedule for which a job runs."""

    #: Name of the schedule among those of its task.
    schedule: str
    #: µs since the epoch; None: a person runs the job by hand.
    moment_us: int | None


@fast_dataclass
class Job:
    """One promise to run a task."""

    raw_id: bytes
    shard: int
    task: str
    queue: str
    priority: int = 0
    # Not in the repr: jobs appear in logs and error reports.
    args: list[Any] = field(default_factory=list, repr=False)
    kwargs: dict[str, Any] = field(default_factory=dict, repr=False)
    retry: RetryPolicy = RetryPolicy()
    #: µs after which TaskTimeout is raised in the task; None: no limit.
    timeout_us: int | None = None
    #: µs after which the run is ended by force; None: `timeout_us` + 10 s, or no limit.
    hard_timeout_us: int | None = None
    #: Unique key among the jobs of its task.
    key: str | None = None
    #: Name of its tenant.
    tenant: str | None = None
    #: The limits under which it runs.
    limits: tuple[LimitUse, ...] = ()
    flags: Flag = Flag(0)
    #: Made by Django's own @task; see `kind`.
    django: bool = False
    #: µs for which its result is kept; None: it keeps none.
    result_ttl_us: int | None = None
    #: The `run_after` of Django's @task, µs since the epoch.
    run_after_us: int | None = None
    #: Alias in TASKS, unless it is the one that shares DELAYQ's store.
    backend: str | None = None
    #: Until when it may begin; None: it never expires.
    expiry: Expiry | None = None
    #: What middlewares put in at the enqueue, a JSON object; None: nothing.
    context: dict[str, Any] | None = field(default=None, repr=False)
    #: The occurrence of a recurring schedule for which it runs.
    occurrence: Occurrence | None = None

    @property
    def id(self) -> str:
        """The id as users see it."""
        return to_text(self.raw_id, self.shard)

    @property
    def kind(self) -> TaskKind:
        """What its kind of task implies."""
        return DJANGO_TASK if self.django else DELAYED_TASK

    @property
    def result_ttl_ms(self) -> int:
        """ms for which its result is kept, at least 1; 0: it keeps none."""
        return 0 if self.result_ttl_us is None else max(1, self.result_ttl_us // 1_000)

    @property
    def member(self) -> bytes:
        """Id, priority byte, flags byte: 14 bytes, fixed for the job's life."""
        return self.raw_id + bytes((MAX_PRIORITY - self.priority, self.flags))

    @property
    def has_extras(self) -> bool:
        """Whether it has a record in `job_extras`."""
        # Not an operation of IntFlag, which takes 0.8 µs.
        return int(self.flags) & _HAS_EXTRAS != 0

    @property
    def hard_limit_us(self) -> int | None:
        """µs after which the run is ended by force; None: no limit."""
        return hard_limit_us(self.timeout_us, self.hard_timeout_us)


@fast_dataclass
class Claim:
    """A ready job taken under a lease."""

    #: Member and token: 30 bytes, the entry in `leases`.
    lease: bytes
    shard: int
    queue: str
    #: The job's score in `ready`, with which a release puts it back.
    rank: int
    #: When it was due, µs since the epoch, to the millisecond.
    due_us: int
    #: None if the body cannot be read; `fault` is the reason.
    job: Job | None
    fault: Exception | None = None
    attempts: AttemptHistory
    #: µs since the epoch, Redis's clock, when the claim was made.
    claimed_us: int
    #: `clock.lease_time()` before the claim was sent, maybe long before Redis made it. The lease counts from here.
    sent_at: float
    #: time.monotonic() when the reply was read, mostly just after Redis made the claim. All else counts from here.
    received_at: float
    #: It is to be dropped, since a limit or its recurring schedule keeps it from beginning.
    is_dropped: bool = False

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
        """Number of the running attempt: 1, 2, 3 …"""
        return self.attempts.ended + 1

    @property
    def hard_limit(self) -> float:
        """Seconds after which the run is ended by force; infinite if the job has no hard limit."""
        limit_us = self.job.hard_limit_us if self.job else None
        return inf if limit_us is None else limit_us / SECOND_US

    @property
    def expires_us(self) -> int | None:
        """When its job expires, µs since the epoch by Redis's clock; None: never."""
        expiry = self.job.expiry if self.job else None
        if expiry is None or expiry.span_us is None or self.attempts != NO_ATTEMPTS:
            return None if expiry is None else expiry.moment_us
        # The moment was computed by the clock of the process that enqueued it. If that clock is slow, a job with a
        # short span would always expire, so the due time in Redis counts as long as it is still the first one.
        return self.due_us + expiry.span_us

    @property
    def is_limited(self) -> bool:
        """Whether it has limits."""
        return self.lease[13] & _LIMITED != 0

    def has_expired(self, now: float) -> bool:
        """Return whether its job expired before `now`, a moment of time.monotonic()."""
        expires_us = self.expires_us
        return expires_us is not None and self.claimed_us + int((now - self.received_at) * SECOND_US) > expires_us
