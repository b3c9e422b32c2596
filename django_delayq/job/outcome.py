"""Outcome: what happened to an attempt; and decide(): what is to be done about it.

The whole truth about retry and dead letter on one screen. Pure: delays, never moments (Redis adds its own now).
"""

from dataclasses import dataclass
from enum import StrEnum

from django_delayq.clock import SECOND_US
from django_delayq.exceptions import BadSignature, NewerBody
from django_delayq.job.retry import RetryPolicy
from django_delayq.job.value import fast_dataclass

#: Wait of a job this worker's code does not fit (unknown task, other arguments, newer version): a deploy may be under
#: way.
UNFIT_DELAY_US = 30 * SECOND_US


class OutcomeKind(StrEnum):
    """How an attempt ended; the value is the reason a dead letter gives."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    RETRY_REQUESTED = "asked to retry"
    REJECTED = "gave up"
    CRASHED = "crashed"
    LEASE_EXPIRED = "lease lapsed"
    INTERRUPTED = "interrupted"
    UNKNOWN_TASK = "unknown_task"
    ARGUMENTS_MISMATCH = "arguments do not fit"
    NEWER = "newer version"
    UNREADABLE = "unreadable"
    BAD_SIGNATURE = "bad_signature"
    RESULT_NOT_SERIALIZABLE = "result cannot be stored"
    UNSTARTED = "unstarted"


def kind_of_fault(fault: Exception | None) -> OutcomeKind:
    """Return how an attempt ends whose body could not be read."""
    if isinstance(fault, NewerBody):
        return OutcomeKind.NEWER
    return OutcomeKind.BAD_SIGNATURE if isinstance(fault, BadSignature) else OutcomeKind.UNREADABLE


@fast_dataclass
class Outcome:
    """What happened to one attempt."""

    kind: OutcomeKind
    #: Traceback or sentence, for people.
    error: str = ""
    #: µs the task asked to wait; None: the policy decides.
    delay_us: int | None = None
    #: µs spent in user code.
    run_us: int = 0
    #: time.monotonic() of this host when user code began; None where it did not.
    began: float | None = None
    #: Class of what the task raised, "module.qualname"; empty where it raised nothing.
    exception: str = ""
    #: JSON of what the task returned, of a job that keeps its result.
    result: str | None = None


UNSTARTED = Outcome(kind=OutcomeKind.UNSTARTED)
#: The error of an interrupted attempt.
STOPPED = "The worker was stopped before the task ended."


class Action(StrEnum):
    """The four ways a claim ends."""

    ACKNOWLEDGE = "acknowledge"
    RETRY = "retry"
    DEAD_LETTER = "dead_letter"
    RELEASE = "release"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What is to be done with the job."""

    action: Action
    #: µs until the next attempt, where there is one.
    delay_us: int = 0
    #: The next attempt runs alone in a process of its own.
    crash_suspected: bool = False
    #: The job waits again at its old rank: nobody's fault ended the attempt, and it had waited for its turn already.
    keeps_place: bool = False


#: What no further attempt would mend.
_FINAL = frozenset(
    {OutcomeKind.REJECTED, OutcomeKind.UNREADABLE, OutcomeKind.BAD_SIGNATURE, OutcomeKind.RESULT_NOT_SERIALIZABLE}
)
#: What the next deploy might mend.
_UNFIT = frozenset({OutcomeKind.UNKNOWN_TASK, OutcomeKind.ARGUMENTS_MISMATCH})
_ACKNOWLEDGE = Decision(action=Action.ACKNOWLEDGE)
_DEAD_LETTER = Decision(action=Action.DEAD_LETTER)
_RELEASE = Decision(action=Action.RELEASE)


def decide(outcome: Outcome, policy: RetryPolicy, *, attempt: int, jitter: float, unfit_waits: bool = True) -> Decision:
    """Judge attempt number `attempt` (1, 2, …) by the job's own policy; `jitter` is drawn from [0, 1).

    Whether a job that this code does not fit waits for other code is a manner of the job's kind.
    """
    ending = outcome.kind
    if ending is OutcomeKind.SUCCEEDED:
        return _ACKNOWLEDGE
    if ending is OutcomeKind.UNSTARTED:
        return _RELEASE
    if ending in _UNFIT and not unfit_waits:
        return _DEAD_LETTER
    if ending in _FINAL or attempt >= policy.max_attempts:
        return _DEAD_LETTER
    suspect = ending in (OutcomeKind.CRASHED, OutcomeKind.LEASE_EXPIRED)
    keeps_place = False
    match ending:
        case OutcomeKind.FAILED if not policy.on_error:
            return _DEAD_LETTER
        case OutcomeKind.LEASE_EXPIRED | OutcomeKind.INTERRUPTED:
            # The lease itself was the wait; a deploy's interruption is nobody's fault.
            delay_us, keeps_place = 0, True
        case OutcomeKind.UNKNOWN_TASK | OutcomeKind.ARGUMENTS_MISMATCH | OutcomeKind.NEWER:
            delay_us = UNFIT_DELAY_US
        case OutcomeKind.RETRY_REQUESTED if outcome.delay_us is not None:
            delay_us = outcome.delay_us
        case _:
            delay_us = policy.delay_us(attempt, jitter)
    return Decision(action=Action.RETRY, delay_us=delay_us, crash_suspected=suspect, keeps_place=keeps_place)
