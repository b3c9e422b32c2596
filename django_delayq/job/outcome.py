"""Outcome: what happened to an attempt; and decide(): what happens to the job next.

All rules for retries and dead letters are here. They are pure and return delays, never times: Redis adds its own now.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum

from django_delayq.clock import DAY_US, SECOND_US
from django_delayq.exceptions import (
    BadBody,
    BadSignature,
    DelayQError,
    JobCrashed,
    JobExpired,
    NewerBody,
    UnknownEncryptionKey,
    UnknownTask,
)
from django_delayq.job.retry import RetryPolicy
from django_delayq.job.value import fast_dataclass

#: Shortest and longest delay of a job that waits for a worker that can run it. Each is as long as the wait so far and
#: the shortest: a rolling deploy takes seconds or minutes.
SHORTEST_WAIT_US, LONGEST_WAIT_US = SECOND_US, 30 * SECOND_US
#: Shortest delay of a snooze: a task that snoozes for 0 s would run in a loop.
SHORTEST_SNOOZE_US = SECOND_US // 10
#: Most interruptions of a job that do not count as attempts. Further ones count, so that a job that never ends within
#: GRACE becomes a dead letter.
FREE_INTERRUPTIONS = 20


class OutcomeKind(StrEnum):
    """How an attempt ended; the value is stored, and shown as the reason of a dead letter."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    RETRY_REQUESTED = "retry requested"
    REJECTED = "gave up"
    CRASHED = "crashed"
    LEASE_EXPIRED = "lease expired"
    INTERRUPTED = "interrupted"
    SNOOZED = "snoozed"
    UNKNOWN_TASK = "unknown task"
    ARGUMENTS_MISMATCH = "arguments do not fit"
    NEWER = "newer version"
    UNKNOWN_KEY = "unknown encryption key"
    UNREADABLE = "unreadable"
    BAD_SIGNATURE = "bad signature"
    RESULT_NOT_SERIALIZABLE = "result cannot be stored"
    UNSTARTED = "unstarted"
    STOPPED = "stopped"
    EXPIRED = "expired"
    DROPPED = "dropped"
    PAUSED = "paused"


def kind_of_fault(fault: Exception | None) -> OutcomeKind:
    """Return the kind of outcome if a body could not be read."""
    if isinstance(fault, NewerBody):
        return OutcomeKind.NEWER
    if isinstance(fault, UnknownEncryptionKey):
        return OutcomeKind.UNKNOWN_KEY
    return OutcomeKind.BAD_SIGNATURE if isinstance(fault, BadSignature) else OutcomeKind.UNREADABLE


#: How an attempt ended whose task raised nothing -> the class of the error that logs and results show.
_ERROR_CLASSES: dict[str, type[DelayQError]] = {
    OutcomeKind.UNKNOWN_TASK: UnknownTask,
    OutcomeKind.NEWER: NewerBody,
    OutcomeKind.UNKNOWN_KEY: UnknownEncryptionKey,
    OutcomeKind.UNREADABLE: BadBody,
    OutcomeKind.BAD_SIGNATURE: BadSignature,
    OutcomeKind.EXPIRED: JobExpired,
}


def error_class(kind: str) -> type[DelayQError]:
    """Return the class of the error to show for an attempt that ended so and raised nothing: `JobCrashed` for most."""
    return _ERROR_CLASSES.get(kind, JobCrashed)


@fast_dataclass
class Outcome:
    """What happened to one attempt."""

    kind: OutcomeKind
    #: Traceback or sentence, for people.
    error: str = ""
    #: µs that the task requested with RetryLater or Snooze, or that its `retry_delay` returned; None: the policy
    #: decides.
    delay_us: int | None = None
    #: µs spent in user code.
    run_us: int = 0
    #: time.monotonic() of this host when user code began; None if it did not.
    began: float | None = None
    #: Class of the exception that says why the attempt failed, "module.qualname"; "" if the task raised nothing.
    exception: str = ""
    #: `lineage_of()` that class; only if the job's policy has rules.
    lineage: tuple[tuple[str, ...], ...] = ()
    #: JSON of what the task returned, if the job keeps its result.
    result: str | None = None
    #: What the task raised, or the exception behind its request, for the log and `retry_delay`; None if it raised
    #: nothing, or in another process.
    raised: BaseException | None = field(default=None, repr=False, compare=False)


UNSTARTED, PAUSED = Outcome(kind=OutcomeKind.UNSTARTED), Outcome(kind=OutcomeKind.PAUSED)
#: The error of an interrupted attempt.
WORKER_STOPPED = "The worker was stopped before the task ended."


def stopped(outcome: Outcome) -> Outcome:
    """Return the outcome after `stop()`: SUCCEEDED if the task returned, otherwise STOPPED."""
    # A result that cannot be stored is STOPPED, too: the script refuses a dead letter of such a job.
    return outcome if outcome.kind is OutcomeKind.SUCCEEDED else replace(outcome, kind=OutcomeKind.STOPPED)


class Action(StrEnum):
    """The ways a claim ends."""

    ACKNOWLEDGE = "acknowledge"
    RETRY = "retry"
    DEAD_LETTER = "dead_letter"
    RELEASE = "release"
    #: The job ends as cancelled, because somebody stopped it while it ran.
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What happens to the job next."""

    action: Action
    #: µs until the next attempt of a retry.
    delay_us: int = 0
    #: The next attempt runs alone in a process of its own.
    crash_suspected: bool = False
    #: The job waits again at its old rank: the attempt did not end by its own fault, and it had waited already.
    keeps_rank: bool = False
    #: The job is released, and waits until its task is resumed.
    parks: bool = False
    #: The attempt counts. If it does not, the action is RETRY, and the number of attempts stays.
    counted: bool = True


#: Outcomes that a further attempt would repeat.
_FINAL = frozenset(
    {OutcomeKind.REJECTED, OutcomeKind.UNREADABLE, OutcomeKind.BAD_SIGNATURE, OutcomeKind.RESULT_NOT_SERIALIZABLE}
)
#: Outcomes that another worker, or the next deploy, may change: the function of the task did not begin.
WAITS_FOR_CODE = frozenset(
    {OutcomeKind.UNKNOWN_TASK, OutcomeKind.ARGUMENTS_MISMATCH, OutcomeKind.NEWER, OutcomeKind.UNKNOWN_KEY}
)
#: The decision on every success.
ACKNOWLEDGE = Decision(action=Action.ACKNOWLEDGE)
_DEAD_LETTER = Decision(action=Action.DEAD_LETTER)
_RELEASE = Decision(action=Action.RELEASE)
_PARK = Decision(action=Action.RELEASE, parks=True)
_CANCEL = Decision(action=Action.CANCEL)


def decide(
    outcome: Outcome,
    policy: RetryPolicy,
    *,
    attempt: int,
    jitter: float,
    interruptions: int = 0,
    waited_us: int = 0,
    longest_wait_us: int = DAY_US,
    waits_on_mismatch: bool = True,
    dead_if_expired: bool = False,
) -> Decision:
    """Judge attempt number `attempt` (1, 2, …) by the job's own policy; `jitter` is drawn from [0, 1).

    `interruptions` is the number of earlier ones. `waited_us` says for how long no worker could run the job, and
    `longest_wait_us` is UNKNOWN_TASK_TTL. `waits_on_mismatch` is that of the job's `TaskKind`, `dead_if_expired` the
    `dead` of its `Expiry`.
    """
    ending = outcome.kind
    if ending is OutcomeKind.SUCCEEDED:
        return ACKNOWLEDGE
    if ending is OutcomeKind.UNSTARTED:
        return _RELEASE
    if ending is OutcomeKind.PAUSED:
        return _PARK
    if ending is OutcomeKind.DROPPED:
        return ACKNOWLEDGE
    if ending is OutcomeKind.STOPPED:
        return _CANCEL
    if ending is OutcomeKind.EXPIRED:
        return _DEAD_LETTER if dead_if_expired else ACKNOWLEDGE
    if ending is OutcomeKind.SNOOZED:
        return _uncounted(max(SHORTEST_SNOOZE_US, outcome.delay_us or 0))
    if ending is OutcomeKind.INTERRUPTED and interruptions < FREE_INTERRUPTIONS:
        return _uncounted(0, keeps_rank=True)
    if ending in WAITS_FOR_CODE:
        waits = waits_on_mismatch or ending is not OutcomeKind.ARGUMENTS_MISMATCH
        if not waits or waited_us >= longest_wait_us:
            return _DEAD_LETTER
        return _uncounted(min(waited_us + SHORTEST_WAIT_US, LONGEST_WAIT_US))
    if ending in _FINAL or not policy.allows(attempt):
        return _DEAD_LETTER
    suspect = ending in (OutcomeKind.CRASHED, OutcomeKind.LEASE_EXPIRED)
    keeps_rank = False
    match ending:
        case OutcomeKind.FAILED if not policy.retries(outcome.lineage):
            return _DEAD_LETTER
        case OutcomeKind.LEASE_EXPIRED | OutcomeKind.INTERRUPTED:
            # After an expired lease the job has waited; an interruption is no fault of the job.
            delay_us, keeps_rank = 0, True
        case OutcomeKind.FAILED | OutcomeKind.RETRY_REQUESTED if outcome.delay_us is not None:
            delay_us = outcome.delay_us
        case _:
            delay_us = policy.delay_us(attempt, jitter)
    return Decision(action=Action.RETRY, delay_us=delay_us, crash_suspected=suspect, keeps_rank=keeps_rank)


def _uncounted(delay_us: int, *, keeps_rank: bool = False) -> Decision:
    return Decision(action=Action.RETRY, delay_us=delay_us, keeps_rank=keeps_rank, counted=False)
