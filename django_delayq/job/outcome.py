"""Outcome: what happened to an attempt; and decide(): what is to be done about it.

The whole truth about retry and dead letter on one screen. Pure: delays, never moments (Redis adds its own now).
"""

from dataclasses import dataclass
from enum import StrEnum

from django_delayq.clock import SECOND_US
from django_delayq.exceptions import BadSignature, NewerBody
from django_delayq.job.retry import RetryPolicy
from django_delayq.job.value import value

#: Wait of a job this worker's code does not fit (unknown task, other arguments, newer version): a deploy may be under
#: way.
UNFIT_DELAY_US = 30 * SECOND_US


class Ending(StrEnum):
    """How an attempt ended; the value is the reason a dead letter gives."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ASKED_RETRY = "asked to retry"
    ASKED_DEAD = "gave up"
    CRASHED = "crashed"
    LAPSED = "lease lapsed"
    INTERRUPTED = "interrupted"
    UNKNOWN_TASK = "unknown_task"
    UNFIT = "arguments do not fit"
    NEWER = "newer version"
    UNREADABLE = "unreadable"
    BAD_SIGNATURE = "bad_signature"
    UNSTORABLE = "result cannot be stored"
    UNSTARTED = "unstarted"


def ending_of(fault: Exception | None) -> Ending:
    """Return how an attempt ends whose body could not be read."""
    if isinstance(fault, NewerBody):
        return Ending.NEWER
    return Ending.BAD_SIGNATURE if isinstance(fault, BadSignature) else Ending.UNREADABLE


@value
class Outcome:
    """What happened to one attempt."""

    ending: Ending
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


UNSTARTED = Outcome(ending=Ending.UNSTARTED)
#: The error of an interrupted attempt.
STOPPED = "The worker was stopped before the task ended."


class Settle(StrEnum):
    """The four ways a claim ends."""

    ACKNOWLEDGE = "acknowledge"
    RETRY = "retry"
    DEAD_LETTER = "dead_letter"
    RELEASE = "release"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What is to be done with the job."""

    settle: Settle
    #: µs until the next attempt, where there is one.
    delay_us: int = 0
    #: The next attempt runs alone in a process of its own.
    suspect: bool = False
    #: The job waits again at its old rank: nobody's fault ended the attempt, and it had waited for its turn already.
    keeps_place: bool = False


#: What no further attempt would mend.
_FINAL = frozenset({Ending.ASKED_DEAD, Ending.UNREADABLE, Ending.BAD_SIGNATURE, Ending.UNSTORABLE})
#: What the next deploy might mend.
_UNFIT = frozenset({Ending.UNKNOWN_TASK, Ending.UNFIT})
_ACKNOWLEDGE = Decision(settle=Settle.ACKNOWLEDGE)
_DEAD_LETTER = Decision(settle=Settle.DEAD_LETTER)
_RELEASE = Decision(settle=Settle.RELEASE)


def decide(outcome: Outcome, policy: RetryPolicy, *, attempt: int, jitter: float, unfit_waits: bool = True) -> Decision:
    """Judge attempt number `attempt` (1, 2, …) by the job's own policy; `jitter` is drawn from [0, 1).

    Whether a job that this code does not fit waits for other code is a manner of the job's kind.
    """
    ending = outcome.ending
    if ending is Ending.SUCCEEDED:
        return _ACKNOWLEDGE
    if ending is Ending.UNSTARTED:
        return _RELEASE
    if ending in _UNFIT and not unfit_waits:
        return _DEAD_LETTER
    if ending in _FINAL or attempt >= policy.max_attempts:
        return _DEAD_LETTER
    suspect = ending in (Ending.CRASHED, Ending.LAPSED)
    keeps_place = False
    match ending:
        case Ending.FAILED if not policy.on_error:
            return _DEAD_LETTER
        case Ending.LAPSED | Ending.INTERRUPTED:
            # The lease itself was the wait; a deploy's interruption is nobody's fault.
            delay_us, keeps_place = 0, True
        case Ending.UNKNOWN_TASK | Ending.UNFIT | Ending.NEWER:
            delay_us = UNFIT_DELAY_US
        case Ending.ASKED_RETRY if outcome.delay_us is not None:
            delay_us = outcome.delay_us
        case _:
            delay_us = policy.delay_us(attempt, jitter)
    return Decision(settle=Settle.RETRY, delay_us=delay_us, suspect=suspect, keeps_place=keeps_place)
