"""At once: functions run at the same time, and an error of one comes after all have ended."""

import threading
from functools import partial

import pytest

from django_delayq.store.client.at_once import at_once


def test_functions_run_at_the_same_time_and_their_results_keep_the_order() -> None:
    # Each of them waits for the others.
    barrier = threading.Barrier(3, timeout=45)

    def meet(number: int) -> tuple[int, bool]:
        barrier.wait()
        return number, threading.current_thread() is threading.main_thread()

    assert at_once([partial(meet, number) for number in range(3)]) == [(0, True), (1, False), (2, False)]
    assert at_once([]) == []


@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_an_error_is_raised_after_all_have_ended(wrong: int) -> None:
    ended: list[int] = []

    def run(number: int) -> None:
        if number == wrong:
            raise LookupError(number)
        ended.append(number)

    with pytest.raises(LookupError):
        at_once([partial(run, number) for number in range(3)])
    assert sorted([*ended, wrong]) == [0, 1, 2]
