"""OutcomeBuffer: no outcome waits without a wake-up, and no request grows beyond what Redis accepts."""

import sys
import threading
from typing import Any

import pytest

from django_delayq.job.outcome import UNSTARTED, Outcome, OutcomeKind
from django_delayq.worker.outcome_buffer import OutcomeBuffer
from tests.factories import numbered

DONE = Outcome(kind=OutcomeKind.SUCCEEDED)


def test_the_first_and_the_last_expected_outcome_wake_the_worker() -> None:
    outcomes = OutcomeBuffer()
    outcomes.expect(4)
    assert [outcomes.add(numbered(number), DONE) for number in range(3)] == [True, False, False]
    assert outcomes.wait > 0
    assert outcomes.add(numbered(3), DONE)
    assert outcomes.wait <= 0
    assert len(outcomes.take()) == 4


def test_taking_only_after_a_wake_up_takes_every_outcome() -> None:
    outcomes, woken, taken = OutcomeBuffer(), threading.Event(), list[Any]()
    outcomes.expect(20_001)

    def end(first: int) -> None:
        for number in range(first, first + 5_000):
            if outcomes.add(numbered(number), DONE):
                woken.set()

    before = sys.getswitchinterval()
    sys.setswitchinterval(0.00001)
    threads = [threading.Thread(target=end, args=(5_000 * number,)) for number in range(4)]
    try:
        for thread in threads:
            thread.start()
        while len(taken) < 20_000:
            assert woken.wait(45), f"no wake-up for the last {20_000 - len(taken)}"
            woken.clear()
            while outcomes:
                taken += outcomes.take()
    finally:
        sys.setswitchinterval(before)
    assert len({each.lease for each, _ in taken}) == 20_000


def test_an_outcome_is_sent_after_five_milliseconds_whatever_comes_after_it() -> None:
    now = 100.0
    outcomes = OutcomeBuffer(clock=lambda: now)
    outcomes.expect(4)
    outcomes.add(numbered(1), DONE)
    assert outcomes.wait == pytest.approx(0.005)
    now += 0.004
    outcomes.add(numbered(2), DONE)
    assert outcomes.wait == pytest.approx(0.001)
    now += 0.001
    assert outcomes.wait <= 0
    outcomes.take()
    outcomes.add(numbered(3), DONE)
    assert outcomes.wait == pytest.approx(0.005)


def test_large_results_are_split_over_requests_and_none_is_left_behind() -> None:
    outcomes = OutcomeBuffer()
    large = Outcome(kind=OutcomeKind.SUCCEEDED, result='"' + 600_000 * "x" + '"')
    outcomes.expect(7)
    for number in range(5):
        outcomes.add(numbered(number), large)
    outcomes.add(numbered(5), DONE)
    sent = []
    while outcomes:
        assert outcomes.wait <= 0 or not sent, "the rest waits again"
        sent.append(len(outcomes.take()))
    assert sent == [2, 2, 2]


def test_outcomes_that_could_not_be_sent_wait_again() -> None:
    outcomes = OutcomeBuffer()
    outcomes.add(numbered(1), DONE)
    with pytest.raises(MemoryError), outcomes.taken():
        raise MemoryError
    assert len(outcomes) == 1
    with outcomes.taken() as taken:
        assert len(taken) == 1
    assert not outcomes


def test_an_unstarted_claim_is_sent_at_once() -> None:
    outcomes = OutcomeBuffer()
    outcomes.expect(3)
    outcomes.add(numbered(1), DONE)
    assert outcomes.wait > 0
    outcomes.add(numbered(2), UNSTARTED)
    assert outcomes.wait <= 0
