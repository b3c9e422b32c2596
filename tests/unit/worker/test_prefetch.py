"""PrefetchPolicy: how many claims to request, from run times and from what workers that share the pool hold."""

from math import inf
from typing import Any

import pytest

from django_delayq.worker.claiming.prefetch import MAX_CLAIMS, Load, PrefetchPolicy


class Worker:
    """A worker of a given pool size, as its prefetch policy sees it."""

    def __init__(self, size: int, *run_us: int, sharing: list[PrefetchPolicy] | None = None) -> None:
        self.holds = 0
        self.policy = PrefetchPolicy(size, holds=lambda: self.holds, sharing=sharing)
        for each in run_us:
            self.policy.observe(each)

    def claim_count(self, holds: int, *, others: int = 0) -> int:
        self.holds = holds
        return self.policy.load(holds + others).claim_count


def worker_after_runs(size: int, run_us: int, sharing: list[PrefetchPolicy] | None = None) -> Worker:
    return Worker(size, *[run_us] * 200, sharing=sharing)


def test_before_the_first_run_it_requests_one_claim_per_slot() -> None:
    worker = Worker(8)
    assert [worker.claim_count(held) for held in (0, 3, 8, 9)] == [8, 5, 0, 0]


def test_short_jobs_share_round_trips() -> None:
    for run_us in (0, 1, 100):
        worker = worker_after_runs(8, run_us)
        assert (worker.policy.target, worker.claim_count(0)) == (2 * MAX_CLAIMS, MAX_CLAIMS)
        assert worker.claim_count(120) == 8 and worker.claim_count(128) == worker.claim_count(1_000) == 0


def test_the_next_batch_is_requested_while_the_last_one_runs() -> None:
    worker = worker_after_runs(8, 1)
    assert worker.policy.refill_at == MAX_CLAIMS == worker.claim_count(MAX_CLAIMS)


@pytest.mark.parametrize("run_us", [60_000, 1_000_000, 3_600_000_000])
def test_long_jobs_take_no_more_than_the_free_slots(run_us: int) -> None:
    worker = worker_after_runs(1, run_us)
    assert (worker.policy.target, worker.policy.refill_at) == (1, 0)
    assert [worker.claim_count(held) for held in (0, 1)] == [1, 0]
    assert [worker_after_runs(8, run_us).claim_count(held) for held in (0, 7, 8)] == [8, 1, 0]


def test_a_full_pool_does_not_ask_again_for_jobs_that_must_wait_for_a_slot() -> None:
    worker = worker_after_runs(2, 1)
    worker.policy.record_more(only_bounded=True, must_wait=True)
    for held, asks in ((0, True), (1, True), (2, False), (3, False)):
        worker.holds = held
        assert worker.policy.load(held).should_refill is asks
    worker.policy.record_more(only_bounded=True, must_wait=False)
    assert worker.policy.load(3).should_refill


def test_held_claims_are_fifty_milliseconds_of_work() -> None:
    assert worker_after_runs(4, 10_000).policy.target == 20


@pytest.mark.parametrize("size", [1, 8, 100, 10_000])
@pytest.mark.parametrize("run_us", [0, 1_000, 10**9])
def test_one_request_never_exceeds_the_limit_of_claims(size: int, run_us: int) -> None:
    worker = worker_after_runs(size, run_us)
    for held in (0, 1, size // 2, size, 2 * size, 10**6):
        assert 0 <= worker.claim_count(held) <= MAX_CLAIMS


def test_a_change_of_run_time_changes_the_target() -> None:
    worker = worker_after_runs(1, 0)
    for _ in range(50):
        worker.policy.observe(1_000_000)
    assert worker.policy.target == 1


def load(**facts: Any) -> Load:
    """Return the load of an unused pool of 8 slots, with jobs of a few ms."""
    return Load(
        **{"size": 8, "held": 0, "own": 0, "contenders": 0, "wait": 0.0, "target": 128, "refill_at": 64, **facts}
    )


LONG: dict[str, Any] = {"target": 1, "refill_at": 0}
FULL: dict[str, Any] = {"held": 8, "wait": inf, **LONG}


@pytest.mark.parametrize(
    ("state", "should_refill", "claim_count"),
    [
        # Alone, or beside workers that have no work.
        (load(), True, 64),
        (load(held=64, own=64, wait=0.024), True, 64),
        (load(held=65, own=65, wait=0.024), False, 63),
        (load(held=128, own=128, wait=0.048), False, 0),
        (load(**LONG), True, 8),
        (load(**FULL, own=8), False, 0),
        (load(**{**FULL, "held": 7}, own=7), True, 1),
        # Idle so far, beside a worker that holds many short jobs: a slot is free soon.
        (load(held=128, wait=0.048, target=8, refill_at=2), True, 8),
        (load(held=128, wait=0.048, contenders=1, target=8, refill_at=2), True, 4),
        (load(held=128, wait=0.048, contenders=15, target=8, refill_at=2), True, 1),
        # Its jobs are long: if all slots are taken, a worker of another process may have a free one.
        (load(**FULL), False, 0),
        (load(**FULL, contenders=1), False, 0),
        # Others want more: they come first for all that this worker holds beyond its share, queued claims included.
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
def test_workers_that_want_more_have_equal_shares(state: Load, should_refill: bool, claim_count: int) -> None:
    assert (state.should_refill, state.claim_count) == (should_refill, claim_count)


def test_an_idle_worker_claims_beside_short_jobs_but_not_beside_long_ones() -> None:
    for run_us, soon in ((3_000, True), (1_000_000, False)):
        sharing: list[PrefetchPolicy] = []
        busy, quiet = worker_after_runs(8, run_us, sharing), Worker(8, sharing=sharing)
        busy.holds = 8
        assert bool(quiet.claim_count(0, others=8)) is soon


def test_a_worker_below_its_share_has_a_slot_even_if_short_jobs_of_another_hold_all() -> None:
    assert load(held=8, own=1, contenders=1, wait=0.003, target=8).has_slot
    assert not load(held=8, own=4, contenders=1, wait=0.003, target=8).has_slot


def test_a_long_job_of_another_worker_does_not_shrink_batches_of_short_jobs() -> None:
    sharing: list[PrefetchPolicy] = []
    other, worker = worker_after_runs(8, 10_000_000, sharing), worker_after_runs(8, 1_000, sharing)
    other.holds = 1
    assert worker.claim_count(20, others=1) == MAX_CLAIMS


def test_a_worker_leaves_a_slot_that_another_has_requested() -> None:
    sharing: list[PrefetchPolicy] = []
    other, worker = worker_after_runs(8, 10_000_000, sharing), worker_after_runs(8, 10_000_000, sharing)
    other.policy.requested = 1
    assert worker.claim_count(7) == 0
    other.policy.requested, other.policy.wants_more = 0, True
    assert worker.claim_count(7) == 0
    other.policy.wants_more = False
    assert worker.claim_count(7) == 1


def test_a_worker_that_stopped_listening_is_woken_for_a_free_slot() -> None:
    sharing: list[PrefetchPolicy] = []
    other, worker = worker_after_runs(8, 10_000_000, sharing), worker_after_runs(8, 10_000_000, sharing)
    assert not worker.policy.request_ended(wants_more=True, held=7)
    other.policy.is_full = True
    assert worker.policy.request_ended(wants_more=False, held=7)
    assert not worker.policy.request_ended(wants_more=False, held=8)
    # A worker does not wake itself.
    assert not other.policy.request_ended(wants_more=False, held=7)
    other.policy.is_full, other.policy.wants_more = False, True
    assert worker.policy.request_ended(wants_more=False, held=8)


def test_after_a_back_off_all_workers_of_the_pool_treat_their_jobs_as_long() -> None:
    sharing: list[PrefetchPolicy] = []
    busy, quiet = worker_after_runs(8, 1_000, sharing), worker_after_runs(8, 1_000, sharing)
    busy.holds = 8
    quiet.policy.back_off()
    assert quiet.claim_count(0, others=8) == busy.claim_count(8) == 0
