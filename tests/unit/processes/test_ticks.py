"""Ticks: the same moments for all threads of a process, others in another process."""

import os
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

import pytest

from django_delayq.processes.ticks import process_share, until_tick


def test_a_tick_is_a_period_after_the_last_one_at_most() -> None:
    for period in (0.5, 5.0, 15.0):
        assert 0.0 < until_tick(period) <= period


def test_all_threads_have_the_same_ticks() -> None:
    def next_tick(_: int) -> float:
        return monotonic() + until_tick(3_600.0)

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(next_tick, range(20)))
    assert max(found) == pytest.approx(min(found), abs=0.1)


def test_ticks_of_a_period_are_ticks_of_the_periods_in_it() -> None:
    apart = until_tick(3_600.0) - until_tick(5.0)
    # A whole number of periods, but for the time between the two calls.
    assert abs(apart - round(apart / 5.0) * 5.0) < 0.1


def test_a_forked_process_has_ticks_of_its_own() -> None:
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        os.write(write, repr(process_share()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert float(os.read(read, 100)) != process_share()
    os.close(read), os.close(write)
