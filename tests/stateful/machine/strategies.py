"""Strategies: what the machine draws when it enqueues, settles, and serves queues."""

from dataclasses import dataclass

from hypothesis import strategies as st

from django_delayq.job.job import LimitUse
from django_delayq.job.outcome import OutcomeKind
from django_delayq.job.unsent import Debounce, Throttle
from tests.stateful.machine.actors import QUEUES

SECOND = 1_000_000
#: With a delay (µs), also not in whole milliseconds; at a time so many µs from now, also in the past.
TIMES = [("delay", 1), ("delay", 1_500), ("delay", 2 * SECOND + 1), ("delay", 3_700 * SECOND)]
TIMES += [("at", -5 * SECOND), ("at", 0), ("at", 999), ("at", 40 * SECOND)]
AT_ONCE = ("now", 0)
EXPIRIES = [("span", SECOND, False), ("span", 60 * SECOND, True), ("moment", 10 * SECOND, False)]
EXPIRIES += [("moment", 3_600 * SECOND, True)]
ENDINGS = [
    OutcomeKind.SUCCEEDED,
    OutcomeKind.FAILED,
    OutcomeKind.RETRY_REQUESTED,
    OutcomeKind.REJECTED,
    OutcomeKind.CRASHED,
]
ENDINGS += [OutcomeKind.INTERRUPTED, OutcomeKind.UNSTARTED, OutcomeKind.SNOOZED, OutcomeKind.UNKNOWN_TASK]
ENDINGS += [OutcomeKind.STOPPED]
#: The due time is bound at the third call at once.
DEBOUNCE = Debounce(2, max_wait=3)
#: It ends between two of the times that pass.
THROTTLE = Throttle(10)
picks = st.integers(0, 15)
limits = st.sampled_from([500, 500, 1, 2])


@dataclass(frozen=True)
class Request:
    """A job to enqueue."""

    queue: str = "default"
    priority: int = 0
    when: tuple[str, int] = AT_ONCE
    key: str | None = None
    unique: str | Debounce | Throttle = "keep"
    until_start: bool = False
    tenant: str | None = None
    max_attempts: int = 3
    large: bool = False
    #: Its result is kept.
    kept: bool = False
    #: Its expiry: a span or a moment from now (µs), and whether it becomes a dead letter then.
    expires: tuple[str, int, bool] | None = None


@dataclass(frozen=True)
class JobLimits:
    """The limits of jobs, the cost under each, and whether a job is dropped that may not begin."""

    uses: tuple[LimitUse, ...] = ()
    cost: int = 1
    drops: bool = False


NO_LIMITS = JobLimits()
requests = st.builds(
    Request,
    queue=st.sampled_from(QUEUES),
    priority=st.sampled_from([0, 0, 0, -100, 100]),
    when=st.just(AT_ONCE) | st.sampled_from(TIMES),
    key=st.sampled_from([None, None, "k", "l"]),
    unique=st.sampled_from(["keep", "reject", "replace", DEBOUNCE, THROTTLE]),
    until_start=st.booleans(),
    tenant=st.sampled_from([None, None, "a", "b"]),
    max_attempts=st.integers(1, 3),
    large=st.sampled_from([False, False, False, True]),
    kept=st.booleans(),
    expires=st.sampled_from([None, None, *EXPIRIES]),
)
endings = st.lists(st.sampled_from(ENDINGS), max_size=4)
queue_lists = st.lists(st.sampled_from(QUEUES), min_size=1, unique=True)
