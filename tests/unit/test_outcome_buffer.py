"""Endings: nothing that ended waits without somebody being told, and no exchange grows beyond what Redis takes."""

import sys
import threading
from typing import Any

import pytest

from django_delayq.job.outcome import UNSTARTED, Outcome, OutcomeKind
from django_delayq.worker.outcome_buffer import OutcomeBuffer
from tests.factories import numbered

DONE = Outcome(kind=OutcomeKind.SUCCEEDED)


def test_only_the_first_that_waits_is_told_of() -> None:
    endings = OutcomeBuffer()
    assert [endings.add(numbered(number), DONE) for number in range(3)] == [True, False, False]
    assert len(endings.take()) == 3
    assert endings.add(numbered(3), DONE)


def test_who_takes_when_told_and_only_then_gets_all() -> None:
    endings, told, taken = OutcomeBuffer(), threading.Event(), list[Any]()

    def end(first: int) -> None:
        for number in range(first, first + 5_000):
            if endings.add(numbered(number), DONE):
                told.set()

    before = sys.getswitchinterval()
    sys.setswitchinterval(0.00001)
    threads = [threading.Thread(target=end, args=(5_000 * number,)) for number in range(4)]
    try:
        for thread in threads:
            thread.start()
        while len(taken) < 20_000:
            assert told.wait(45), f"nobody told of the last {20_000 - len(taken)}"
            told.clear()
            while endings:
                taken += endings.take()
    finally:
        sys.setswitchinterval(before)
    assert len({each.lease for each, _ in taken}) == 20_000


def test_an_outcome_is_handed_in_after_five_milliseconds_whatever_comes_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr("django_delayq.worker.outcome_buffer.monotonic", lambda: now)
    endings = OutcomeBuffer()
    endings.add(numbered(1), DONE)
    assert endings.wait == pytest.approx(0.005)
    now += 0.004
    endings.add(numbered(2), DONE)
    assert endings.wait == pytest.approx(0.001)
    now += 0.001
    assert endings.wait <= 0
    endings.take()
    endings.add(numbered(3), DONE)
    assert endings.wait == pytest.approx(0.005)


def test_large_results_go_in_exchanges_of_their_own_and_none_is_left_behind() -> None:
    endings = OutcomeBuffer()
    large = Outcome(kind=OutcomeKind.SUCCEEDED, result='"' + 600_000 * "x" + '"')
    for number in range(5):
        endings.add(numbered(number), large)
    endings.add(numbered(5), DONE)
    handed_in = []
    while endings:
        assert endings.wait <= 0 or not handed_in, "what was left behind waits again"
        handed_in.append(len(endings.take()))
    assert handed_in == [2, 2, 2]


def test_outcomes_that_could_not_be_handed_in_wait_again() -> None:
    endings = OutcomeBuffer()
    endings.add(numbered(1), DONE)
    with pytest.raises(MemoryError), endings.taken():
        raise MemoryError
    assert len(endings) == 1
    with endings.taken() as ended:
        assert len(ended) == 1
    assert not endings


def test_what_did_not_begin_waits_for_no_company() -> None:
    endings = OutcomeBuffer()
    endings.add(numbered(1), DONE)
    assert endings.wait > 0
    endings.add(numbered(2), UNSTARTED)
    assert endings.wait <= 0
