"""decide(): the whole truth about retry and dead letter, row by row."""

from itertools import product

import pytest

from django_delayq.job.outcome import UNFIT_DELAY_US, Decision, Ending, Outcome, Settle, decide
from django_delayq.job.retry import RetryPolicy

#: Jitter ½ of base 2 s at attempt 1.
BACKOFF = 1_000_000
LAST, EARLIER = 3, 1
RETRY, DEAD = Settle.RETRY, Settle.DEAD_LETTER

#: ending -> on_error -> what an attempt before the last leads to: settle, delay, suspect.
EARLIER_ATTEMPT: dict[Ending, dict[bool, tuple[Settle, int, bool]]] = {
    Ending.SUCCEEDED: dict.fromkeys((True, False), (Settle.ACKNOWLEDGE, 0, False)),
    Ending.UNSTARTED: dict.fromkeys((True, False), (Settle.RELEASE, 0, False)),
    Ending.FAILED: {True: (RETRY, BACKOFF, False), False: (DEAD, 0, False)},
    Ending.ASKED_RETRY: dict.fromkeys((True, False), (RETRY, BACKOFF, False)),
    Ending.ASKED_DEAD: dict.fromkeys((True, False), (DEAD, 0, False)),
    Ending.CRASHED: dict.fromkeys((True, False), (RETRY, BACKOFF, True)),
    Ending.LAPSED: dict.fromkeys((True, False), (RETRY, 0, True)),
    Ending.INTERRUPTED: dict.fromkeys((True, False), (RETRY, 0, False)),
    Ending.UNKNOWN_TASK: dict.fromkeys((True, False), (RETRY, UNFIT_DELAY_US, False)),
    Ending.UNFIT: dict.fromkeys((True, False), (RETRY, UNFIT_DELAY_US, False)),
    Ending.NEWER: dict.fromkeys((True, False), (RETRY, UNFIT_DELAY_US, False)),
    Ending.UNREADABLE: dict.fromkeys((True, False), (DEAD, 0, False)),
    Ending.BAD_SIGNATURE: dict.fromkeys((True, False), (DEAD, 0, False)),
    Ending.UNSTORABLE: dict.fromkeys((True, False), (DEAD, 0, False)),
}
KEEPS_PLACE = {Ending.LAPSED, Ending.INTERRUPTED}
#: What the last attempt leads to, where it is not a dead letter.
LAST_ATTEMPT = {Ending.SUCCEEDED: Settle.ACKNOWLEDGE, Ending.UNSTARTED: Settle.RELEASE}


def test_the_table_is_complete() -> None:
    assert set(EARLIER_ATTEMPT) == set(Ending)


@pytest.mark.parametrize(("ending", "on_error"), list(product(Ending, (True, False))))
def test_an_attempt_before_the_last(ending: Ending, on_error: bool) -> None:
    policy = RetryPolicy(max_attempts=LAST, base=2, on_error=on_error)
    settle, delay_us, suspect = EARLIER_ATTEMPT[ending][on_error]
    assert decide(Outcome(ending=ending), policy, attempt=EARLIER, jitter=0.5) == Decision(
        settle=settle, delay_us=delay_us, suspect=suspect, keeps_place=ending in KEEPS_PLACE
    )


@pytest.mark.parametrize(
    ("ending", "on_error", "attempt", "delay_us"),
    list(product(Ending, (True, False), (LAST, LAST + 1, 1_000), (None, 5))),
)
def test_max_attempts_is_never_exceeded(ending: Ending, on_error: bool, attempt: int, delay_us: int | None) -> None:
    policy = RetryPolicy(max_attempts=LAST, on_error=on_error)
    decision = decide(Outcome(ending=ending, delay_us=delay_us), policy, attempt=attempt, jitter=0.5)
    assert decision == Decision(settle=LAST_ATTEMPT.get(ending, DEAD))


@pytest.mark.parametrize("delay_us", [0, 1, 10**15])
def test_a_task_that_asks_for_a_delay_gets_it(delay_us: int) -> None:
    outcome = Outcome(ending=Ending.ASKED_RETRY, delay_us=delay_us)
    decision = decide(outcome, RetryPolicy(on_error=False), attempt=1, jitter=0.5)
    assert decision == Decision(settle=RETRY, delay_us=delay_us)


@pytest.mark.parametrize("attempt", [1, 2, 3, 4])
def test_backoff_grows_with_the_attempt(attempt: int) -> None:
    decision = decide(Outcome(ending=Ending.FAILED), RetryPolicy(base=2), attempt=attempt, jitter=0.5)
    assert decision.delay_us == BACKOFF * 2 ** (attempt - 1)


def test_one_attempt_means_one() -> None:
    for ending in set(Ending) - set(LAST_ATTEMPT):
        assert decide(Outcome(ending=ending), RetryPolicy(max_attempts=1), attempt=1, jitter=0.5).settle is DEAD
