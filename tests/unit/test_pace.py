"""Pace: claims worth holding, from how long jobs took."""

import pytest

from django_delayq.pace import MAX_CLAIMS, Pace


def paced(size: int, run_us: int) -> Pace:
    pace = Pace(size)
    for _ in range(200):
        pace.ran(run_us)
    return pace


def test_before_the_first_run_a_claim_per_slot() -> None:
    assert [Pace(8).want(held) for held in (0, 3, 8, 9)] == [8, 5, 0, 0]


def test_short_jobs_share_round_trips() -> None:
    for run_us in (0, 1, 100):
        pace = paced(8, run_us)
        assert (pace.target, pace.want(0)) == (2 * MAX_CLAIMS, MAX_CLAIMS)
        assert pace.want(120) == 8 and pace.want(128) == pace.want(1_000) == 0


def test_the_next_batch_is_asked_for_while_the_last_one_runs() -> None:
    pace = paced(8, 1)
    assert pace.low == MAX_CLAIMS == pace.want(MAX_CLAIMS)


@pytest.mark.parametrize("run_us", [60_000, 1_000_000, 3_600_000_000])
def test_long_jobs_take_no_more_than_the_free_slots(run_us: int) -> None:
    pace = paced(1, run_us)
    assert (pace.target, pace.low) == (1, 0)
    assert [pace.want(held) for held in (0, 1)] == [1, 0]
    assert [paced(8, run_us).want(held) for held in (0, 7, 8)] == [8, 1, 0]


def test_what_is_held_is_fifty_milliseconds_of_work() -> None:
    assert paced(4, 10_000).target == 20


@pytest.mark.parametrize("size", [1, 8, 100, 10_000])
@pytest.mark.parametrize("run_us", [0, 1_000, 10**9])
def test_one_exchange_never_asks_for_more_than_its_limit(size: int, run_us: int) -> None:
    pace = paced(size, run_us)
    for held in (0, 1, size // 2, size, 2 * size, 10**6):
        assert 0 <= pace.want(held) <= MAX_CLAIMS


def test_a_change_of_pace_is_noticed() -> None:
    pace = paced(1, 0)
    for _ in range(50):
        pace.ran(1_000_000)
    assert pace.target == 1
