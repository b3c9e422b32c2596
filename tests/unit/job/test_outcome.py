"""decide(): all rules for retries and dead letters, row by row."""

from itertools import product

import pytest

from django_delayq.job.outcome import (
    FREE_INTERRUPTIONS,
    LONGEST_WAIT_US,
    SHORTEST_SNOOZE_US,
    SHORTEST_WAIT_US,
    WAITS_FOR_CODE,
    Action,
    Decision,
    Outcome,
    OutcomeKind,
    decide,
)
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
    OutcomeKind.SNOOZED: dict.fromkeys((True, False), (RETRY, SHORTEST_SNOOZE_US, False)),
    OutcomeKind.REJECTED: dict.fromkeys((True, False), (DEAD, 0, False)),
    OutcomeKind.CRASHED: dict.fromkeys((True, False), (RETRY, BACKOFF, True)),
    OutcomeKind.LEASE_EXPIRED: dict.fromkeys((True, False), (RETRY, 0, True)),
    OutcomeKind.INTERRUPTED: dict.fromkeys((True, False), (RETRY, 0, False)),
    OutcomeKind.UNKNOWN_TASK: dict.fromkeys((True, False), (RETRY, SHORTEST_WAIT_US, False)),
    OutcomeKind.ARGUMENTS_MISMATCH: dict.fromkeys((True, False), (RETRY, SHORTEST_WAIT_US, False)),
    OutcomeKind.NEWER: dict.fromkeys((True, False), (RETRY, SHORTEST_WAIT_US, False)),
    OutcomeKind.UNKNOWN_KEY: dict.fromkeys((True, False), (RETRY, SHORTEST_WAIT_US, False)),
    OutcomeKind.UNREADABLE: dict.fromkeys((True, False), (DEAD, 0, False)),
    OutcomeKind.BAD_SIGNATURE: dict.fromkeys((True, False), (DEAD, 0, False)),
    OutcomeKind.RESULT_NOT_SERIALIZABLE: dict.fromkeys((True, False), (DEAD, 0, False)),
    OutcomeKind.STOPPED: dict.fromkeys((True, False), (Action.CANCEL, 0, False)),
    OutcomeKind.EXPIRED: dict.fromkeys((True, False), (Action.ACKNOWLEDGE, 0, False)),
    OutcomeKind.DROPPED: dict.fromkeys((True, False), (Action.ACKNOWLEDGE, 0, False)),
    OutcomeKind.PAUSED: dict.fromkeys((True, False), (Action.RELEASE, 0, False)),
}
KEEPS_PLACE = {OutcomeKind.LEASE_EXPIRED, OutcomeKind.INTERRUPTED}
#: Runs that are no attempts, whatever the number of the attempt.
UNCOUNTED = {OutcomeKind.SNOOZED, OutcomeKind.INTERRUPTED, *WAITS_FOR_CODE}
#: The decision on the last attempt, if it is not a dead letter.
LAST_ATTEMPT = {
    OutcomeKind.SUCCEEDED: Action.ACKNOWLEDGE,
    OutcomeKind.UNSTARTED: Action.RELEASE,
    OutcomeKind.STOPPED: Action.CANCEL,
    OutcomeKind.EXPIRED: Action.ACKNOWLEDGE,
    OutcomeKind.DROPPED: Action.ACKNOWLEDGE,
    OutcomeKind.PAUSED: Action.RELEASE,
}


def test_the_table_is_complete() -> None:
    assert set(EARLIER_ATTEMPT) == set(OutcomeKind)


@pytest.mark.parametrize(("ending", "on_error"), list(product(OutcomeKind, (True, False))))
def test_an_attempt_before_the_last(ending: OutcomeKind, on_error: bool) -> None:
    policy = RetryPolicy(max_attempts=LAST, base=2, on_error=on_error)
    settle, delay_us, suspect = EARLIER_ATTEMPT[ending][on_error]
    assert decide(Outcome(kind=ending), policy, attempt=EARLIER, jitter=0.5) == Decision(
        action=settle,
        delay_us=delay_us,
        crash_suspected=suspect,
        keeps_rank=ending in KEEPS_PLACE,
        parks=ending is OutcomeKind.PAUSED,
        counted=ending not in UNCOUNTED,
    )


@pytest.mark.parametrize(
    ("ending", "on_error", "attempt", "delay_us"),
    list(product(sorted(set(OutcomeKind) - UNCOUNTED), (True, False), (LAST, LAST + 1, 1_000), (None, 5))),
)
def test_max_attempts_is_never_exceeded(
    ending: OutcomeKind, on_error: bool, attempt: int, delay_us: int | None
) -> None:
    policy = RetryPolicy(max_attempts=LAST, on_error=on_error)
    decision = decide(Outcome(kind=ending, delay_us=delay_us), policy, attempt=attempt, jitter=0.5)
    assert decision == Decision(action=LAST_ATTEMPT.get(ending, DEAD), parks=ending is OutcomeKind.PAUSED)


@pytest.mark.parametrize("delay_us", [0, 1, 10**15])
def test_a_task_that_requests_a_delay_gets_it(delay_us: int) -> None:
    outcome = Outcome(kind=OutcomeKind.RETRY_REQUESTED, delay_us=delay_us)
    decision = decide(outcome, RetryPolicy(on_error=False), attempt=1, jitter=0.5)
    assert decision == Decision(action=RETRY, delay_us=delay_us)


@pytest.mark.parametrize("attempt", [1, 2, 3, 4])
def test_backoff_grows_with_the_attempt(attempt: int) -> None:
    decision = decide(Outcome(kind=OutcomeKind.FAILED), RetryPolicy(base=2), attempt=attempt, jitter=0.5)
    assert decision.delay_us == BACKOFF * 2 ** (attempt - 1)


@pytest.mark.parametrize("attempt", [EARLIER, LAST])
def test_an_expired_job_may_become_a_dead_letter(attempt: int) -> None:
    outcome, policy = Outcome(kind=OutcomeKind.EXPIRED), RetryPolicy(max_attempts=LAST)
    assert decide(outcome, policy, attempt=attempt, jitter=0.5, dead_if_expired=True) == Decision(action=DEAD)


def test_one_attempt_means_one() -> None:
    for ending in set(OutcomeKind) - set(LAST_ATTEMPT) - UNCOUNTED:
        assert decide(Outcome(kind=ending), RetryPolicy(max_attempts=1), attempt=1, jitter=0.5).action is DEAD


@pytest.mark.parametrize("attempt", [1, LAST, 1_000])
@pytest.mark.parametrize("ending", sorted(UNCOUNTED))
def test_a_run_that_is_no_attempt_never_ends_the_job(ending: OutcomeKind, attempt: int) -> None:
    decision = decide(Outcome(kind=ending), RetryPolicy(max_attempts=1), attempt=attempt, jitter=0.5)
    assert (decision.action, decision.counted) == (RETRY, False)


@pytest.mark.parametrize(("asked_us", "delay_us"), [(0, 100_000), (1, 100_000), (100_001, 100_001), (10**15, 10**15)])
def test_a_snooze_lasts_as_long_as_asked_and_at_least_100_ms(asked_us: int, delay_us: int) -> None:
    outcome = Outcome(kind=OutcomeKind.SNOOZED, delay_us=asked_us)
    assert decide(outcome, RetryPolicy(), attempt=1, jitter=0.5).delay_us == delay_us


def test_the_interruptions_of_a_job_count_after_the_first_20() -> None:
    outcome, policy = Outcome(kind=OutcomeKind.INTERRUPTED), RetryPolicy(max_attempts=2)
    assert not decide(outcome, policy, attempt=2, jitter=0.5, interruptions=FREE_INTERRUPTIONS - 1).counted
    counted = decide(outcome, policy, attempt=1, jitter=0.5, interruptions=FREE_INTERRUPTIONS)
    assert (counted.action, counted.counted, counted.keeps_rank) == (RETRY, True, True)
    assert decide(outcome, policy, attempt=2, jitter=0.5, interruptions=FREE_INTERRUPTIONS).action is DEAD


@pytest.mark.parametrize("ending", sorted(WAITS_FOR_CODE))
def test_a_job_that_no_worker_can_run_waits_twice_as_long_each_time(ending: OutcomeKind) -> None:
    waited_us, waits = 0, []
    while len(waits) < 7:
        decision = decide(Outcome(kind=ending), RetryPolicy(), attempt=1, jitter=0.5, waited_us=waited_us)
        waits.append(decision.delay_us // 1_000_000)
        waited_us += decision.delay_us
    assert waits == [1, 2, 4, 8, 16, 30, 30]
    assert decision.delay_us == LONGEST_WAIT_US


@pytest.mark.parametrize("ending", sorted(WAITS_FOR_CODE))
def test_a_job_waits_for_code_as_long_as_the_setting_says(ending: OutcomeKind) -> None:
    def after(waited_us: int) -> Action:
        outcome = Outcome(kind=ending)
        return decide(outcome, RetryPolicy(), attempt=1, jitter=0, waited_us=waited_us, longest_wait_us=60).action

    assert (after(59), after(60)) == (RETRY, DEAD)


def test_a_django_task_with_wrong_arguments_fails_at_once_and_an_unknown_one_waits() -> None:
    decisions = {
        ending: decide(Outcome(kind=ending), RetryPolicy(), attempt=1, jitter=0.5, waits_on_mismatch=False).action
        for ending in WAITS_FOR_CODE
    }
    assert decisions == {**dict.fromkeys(WAITS_FOR_CODE, RETRY), OutcomeKind.ARGUMENTS_MISMATCH: DEAD}
