"""Pace: claims worth asking for, from how long jobs took and from what others who share the pool hold."""

from math import inf
from typing import Any

import pytest

from django_delayq.worker.prefetch import MAX_CLAIMS, Load, PrefetchPolicy


class Worker:
    """What a worker does with its pace."""

    def __init__(self, size: int, *run_us: int, sharing: list[PrefetchPolicy] | None = None) -> None:
        self.holds = 0
        self.pace = PrefetchPolicy(size, holds=lambda: self.holds, sharing=sharing)
        for each in run_us:
            self.pace.observe(each)

    def want(self, holds: int, *, others: int = 0) -> int:
        self.holds = holds
        return self.pace.load(holds + others).claim_count


def paced(size: int, run_us: int, sharing: list[PrefetchPolicy] | None = None) -> Worker:
    return Worker(size, *[run_us] * 200, sharing=sharing)


def test_before_the_first_run_a_claim_per_slot() -> None:
    worker = Worker(8)
    assert [worker.want(held) for held in (0, 3, 8, 9)] == [8, 5, 0, 0]


def test_short_jobs_share_round_trips() -> None:
    for run_us in (0, 1, 100):
        worker = paced(8, run_us)
        assert (worker.pace.target, worker.want(0)) == (2 * MAX_CLAIMS, MAX_CLAIMS)
        assert worker.want(120) == 8 and worker.want(128) == worker.want(1_000) == 0


def test_the_next_batch_is_asked_for_while_the_last_one_runs() -> None:
    worker = paced(8, 1)
    assert worker.pace.refill_at == MAX_CLAIMS == worker.want(MAX_CLAIMS)


@pytest.mark.parametrize("run_us", [60_000, 1_000_000, 3_600_000_000])
def test_long_jobs_take_no_more_than_the_free_slots(run_us: int) -> None:
    worker = paced(1, run_us)
    assert (worker.pace.target, worker.pace.refill_at) == (1, 0)
    assert [worker.want(held) for held in (0, 1)] == [1, 0]
    assert [paced(8, run_us).want(held) for held in (0, 7, 8)] == [8, 1, 0]


def test_what_is_held_is_fifty_milliseconds_of_work() -> None:
    assert paced(4, 10_000).pace.target == 20


@pytest.mark.parametrize("size", [1, 8, 100, 10_000])
@pytest.mark.parametrize("run_us", [0, 1_000, 10**9])
def test_one_exchange_never_asks_for_more_than_its_limit(size: int, run_us: int) -> None:
    worker = paced(size, run_us)
    for held in (0, 1, size // 2, size, 2 * size, 10**6):
        assert 0 <= worker.want(held) <= MAX_CLAIMS


def test_a_change_of_pace_is_noticed() -> None:
    worker = paced(1, 0)
    for _ in range(50):
        worker.pace.observe(1_000_000)
    assert worker.pace.target == 1


def load(**facts: Any) -> Load:
    """A pool of 8, used by nobody; jobs of a few ms."""
    return Load(**{"size": 8, "held": 0, "own": 0, "contenders": 0, "wait": 0.0, "target": 128, "low": 64, **facts})


LONG: dict[str, Any] = {"target": 1, "low": 0}
FULL: dict[str, Any] = {"held": 8, "wait": inf, **LONG}


@pytest.mark.parametrize(
    ("state", "should_refill", "want"),
    [
        # Alone, or beside workers that have no work.
        (load(), True, 64),
        (load(held=64, own=64, wait=0.024), True, 64),
        (load(held=65, own=65, wait=0.024), False, 63),
        (load(held=128, own=128, wait=0.048), False, 0),
        (load(**LONG), True, 8),
        (load(**FULL, own=8), False, 0),
        (load(**{**FULL, "held": 7}, own=7), True, 1),
        # Quiet so far, beside one that holds much: its jobs are short, so that a slot is free soon.
        (load(held=128, wait=0.048, target=8, low=2), True, 8),
        (load(held=128, wait=0.048, contenders=1, target=8, low=2), True, 4),
        (load(held=128, wait=0.048, contenders=15, target=8, low=2), True, 1),
        # Its jobs are long: where all slots are taken, another process may have one.
        (load(**FULL), False, 0),
        (load(**FULL, contenders=1), False, 0),
        # Others want more: what it has beyond its share is theirs first, slots as well as what waits for them.
        (load(held=7, own=7, contenders=1, wait=inf, **LONG), False, 0),
        (load(held=7, own=3, contenders=1, wait=inf, **LONG), True, 1),
        (load(held=6, own=0, contenders=3, wait=inf, **LONG), True, 2),
        (load(held=64, own=64, contenders=1, wait=0.024), False, 0),
        (load(held=96, own=32, contenders=1, wait=0.036), True, 32),
        # More workers than slots: each may have one.
        (load(size=1, contenders=3, **LONG), True, 1),
        (load(size=1, held=1, own=1, contenders=3, wait=inf, **LONG), False, 0),
    ],
)
def test_of_those_who_want_more_each_has_an_equal_share(state: Load, should_refill: bool, want: int) -> None:
    assert (state.should_refill, state.claim_count) == (should_refill, want)


def test_a_slot_is_free_soon_beside_short_jobs_and_not_beside_long_ones() -> None:
    for run_us, soon in ((3_000, True), (1_000_000, False)):
        sharing: list[PrefetchPolicy] = []
        busy, quiet = paced(8, run_us, sharing), Worker(8, sharing=sharing)
        busy.holds = 8
        assert bool(quiet.want(0, others=8)) is soon


def test_a_worker_below_its_share_has_a_slot_though_short_jobs_of_another_hold_all() -> None:
    assert load(held=8, own=1, contenders=1, wait=0.003, target=8).has_slot
    assert not load(held=8, own=4, contenders=1, wait=0.003, target=8).has_slot


def test_one_long_job_of_another_leaves_short_ones_their_batches() -> None:
    sharing: list[PrefetchPolicy] = []
    other, worker = paced(8, 10_000_000, sharing), paced(8, 1_000, sharing)
    other.holds = 1
    assert worker.want(20, others=1) == MAX_CLAIMS


def test_what_another_has_asked_for_is_left_to_it() -> None:
    sharing: list[PrefetchPolicy] = []
    other, worker = paced(8, 10_000_000, sharing), paced(8, 10_000_000, sharing)
    other.pace.requested = 1
    assert worker.want(7) == 0
    other.pace.requested, other.pace.wants_more = 0, True
    assert worker.want(7) == 0
    other.pace.wants_more = False
    assert worker.want(7) == 1


def test_who_does_not_listen_is_woken_for_a_slot_that_is_left() -> None:
    sharing: list[PrefetchPolicy] = []
    other, worker = paced(8, 10_000_000, sharing), paced(8, 10_000_000, sharing)
    assert not worker.pace.request_ended(wants_more=True, held=7)
    other.pace.is_full = True
    assert worker.pace.request_ended(wants_more=False, held=7)
    assert not worker.pace.request_ended(wants_more=False, held=8)
    # Nor does anybody wake himself.
    assert not other.pace.request_ended(wants_more=False, held=7)
    other.pace.is_full, other.pace.wants_more = False, True
    assert worker.pace.request_ended(wants_more=False, held=8)


def test_what_was_given_back_makes_all_who_share_the_pool_take_their_jobs_for_long() -> None:
    sharing: list[PrefetchPolicy] = []
    busy, quiet = paced(8, 1_000, sharing), paced(8, 1_000, sharing)
    busy.holds = 8
    quiet.pace.back_off()
    assert quiet.want(0, others=8) == busy.want(8) == 0
