"""decide(): all rules for retries and dead letters, row by row."""

from itertools import product

import pytest

from django_delayq.job.outcome import UNFIT_DELAY_US, Action, Decision, Outcome, OutcomeKind, decide
from django_delayq.job.retry import RetryPolicy

#: Jitter ½ of base 2 s at attempt 1.
BACKOFF = 1_000_000
LAST, EARLIER = 3, 1
RETRY, DEAD = Action.RETRY, Action.DEAD_LETTER

#: ending -> on_error -> the decision on an attempt before the last: action, delay, crash_suspected.
EARLIER_ATTEMPT: dict[OutcomeKind, dict[bool, tuple[Action, int, bool]]] = {
    OutcomeKind.SUCCEEDED: dict.fromkeys((True, False), (Action.ACKNOWLEDGE, 0, False)),
    OutcomeKind.UNSTARTED: dict.fromkeys((True, False), (Action.RELEASE, 0, False)),
    OutcomeKind.FAILED: {True: (RETRY, BACKOFF, False), False: (DEAD, 0, False)},
    OutcomeKind.RETRY_REQUESTED: dict.fromkeys((True, False), (RETRY, BACKOFF, False)),
    OutcomeKind.REJECTED: dict.fromkeys((True, False), (DEAD, 0, False)),
    OutcomeKind.CRASHED: dict.fromkeys((True, False), (RETRY, BACKOFF, True)),
    OutcomeKind.LEASE_EXPIRED: dict.fromkeys((True, False), (RETRY, 0, True)),
    OutcomeKind.INTERRUPTED: dict.fromkeys((True, False), (RETRY, 0, False)),
    OutcomeKind.UNKNOWN_TASK: dict.fromkeys((True, False), (RETRY, UNFIT_DELAY_US, False)),
    OutcomeKind.ARGUMENTS_MISMATCH: dict.fromkeys((True, False), (RETRY, UNFIT_DELAY_US, False)),
    OutcomeKind.NEWER: dict.fromkeys((True, False), (RETRY, UNFIT_DELAY_US, False)),
    OutcomeKind.UNKNOWN_KEY: dict.fromkeys((True, False), (RETRY, UNFIT_DELAY_US, False)),
    OutcomeKind.UNREADABLE: dict.fromkeys((True, False), (DEAD, 0, False)),
    OutcomeKind.BAD_SIGNATURE: dict.fromkeys((True, False), (DEAD, 0, False)),
    OutcomeKind.RESULT_NOT_SERIALIZABLE: dict.fromkeys((True, False), (DEAD, 0, False)),
}
KEEPS_PLACE = {OutcomeKind.LEASE_EXPIRED, OutcomeKind.INTERRUPTED}
#: The decision on the last attempt, if it is not a dead letter.
LAST_ATTEMPT = {OutcomeKind.SUCCEEDED: Action.ACKNOWLEDGE, OutcomeKind.UNSTARTED: Action.RELEASE}


def test_the_table_is_complete() -> None:
    assert set(EARLIER_ATTEMPT) == set(OutcomeKind)


@pytest.mark.parametrize(("ending", "on_error"), list(product(OutcomeKind, (True, False))))
def test_an_attempt_before_the_last(ending: OutcomeKind, on_error: bool) -> None:
    policy = RetryPolicy(max_attempts=LAST, base=2, on_error=on_error)
    settle, delay_us, suspect = EARLIER_ATTEMPT[ending][on_error]
    assert decide(Outcome(kind=ending), policy, attempt=EARLIER, jitter=0.5) == Decision(
        action=settle, delay_us=delay_us, crash_suspected=suspect, keeps_rank=ending in KEEPS_PLACE
    )


@pytest.mark.parametrize(
    ("ending", "on_error", "attempt", "delay_us"),
    list(product(OutcomeKind, (True, False), (LAST, LAST + 1, 1_000), (None, 5))),
)
def test_max_attempts_is_never_exceeded(
    ending: OutcomeKind, on_error: bool, attempt: int, delay_us: int | None
) -> None:
    policy = RetryPolicy(max_attempts=LAST, on_error=on_error)
    decision = decide(Outcome(kind=ending, delay_us=delay_us), policy, attempt=attempt, jitter=0.5)
    assert decision == Decision(action=LAST_ATTEMPT.get(ending, DEAD))


@pytest.mark.parametrize("delay_us", [0, 1, 10**15])
def test_a_task_that_requests_a_delay_gets_it(delay_us: int) -> None:
    outcome = Outcome(kind=OutcomeKind.RETRY_REQUESTED, delay_us=delay_us)
    decision = decide(outcome, RetryPolicy(on_error=False), attempt=1, jitter=0.5)
    assert decision == Decision(action=RETRY, delay_us=delay_us)


@pytest.mark.parametrize("attempt", [1, 2, 3, 4])
def test_backoff_grows_with_the_attempt(attempt: int) -> None:
    decision = decide(Outcome(kind=OutcomeKind.FAILED), RetryPolicy(base=2), attempt=attempt, jitter=0.5)
    assert decision.delay_us == BACKOFF * 2 ** (attempt - 1)


def test_one_attempt_means_one() -> None:
    for ending in set(OutcomeKind) - set(LAST_ATTEMPT):
        assert decide(Outcome(kind=ending), RetryPolicy(max_attempts=1), attempt=1, jitter=0.5).action is DEAD
