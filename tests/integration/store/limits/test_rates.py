"""Limits on a rate: bursts, even intervals, costs, and what is given back."""

import pytest

from django_delayq.job.job import LimitUse
from django_delayq.job.outcome import Action
from tests.shard_apis import MS, SECOND, ShardApis, ids, settlement

RATE, EVEN, BOTH = LimitUse("rate"), LimitUse("even"), LimitUse("both")


def run_all(apis: ShardApis, limit: LimitUse, count: int, *, step: int, cost: int = 1) -> list[int]:
    """Run jobs with a dispatcher and a worker that look every `step` µs; return when each was claimed."""
    for _ in range(count):
        apis.add(limits=[limit], cost=cost)
    worker, began = apis.worker(), list[int]()
    until = apis.clock.now_us + 60 * SECOND
    while len(began) < count:
        assert apis.clock.now_us < until
        apis.let_in()
        while True:
            reply = worker.take(10)
            began += [apis.clock.now_us] * len(reply.claims)
            for claim in reply.claims:
                worker.settle(claim, Action.ACKNOWLEDGE)
            if not reply.has_more:
                break
        apis.clock.advance(step)
    return began


@pytest.mark.parametrize("step", [1 * MS, 7 * MS, 33 * MS])
def test_no_second_has_more_than_rate_and_burst(apis: ShardApis, step: int) -> None:
    began = run_all(apis, RATE, 45, step=step)
    for start in began:
        assert sum(start <= each < start + SECOND for each in began) <= 13
    # Only the first burst is free; the rest takes 4.2 s at 10 a second.
    assert 4_200 * MS <= began[-1] - began[0] <= 4_200 * MS + 3 * step


def test_the_first_jobs_after_a_pause_are_a_burst(apis: ShardApis) -> None:
    began = run_all(apis, RATE, 5, step=MS)
    assert began[:3] == [began[0]] * 3
    assert [each - began[0] for each in began[3:]] == [100 * MS, 200 * MS]
    apis.clock.advance(SECOND)
    again = run_all(apis, RATE, 4, step=MS)
    assert [each - again[0] for each in again] == [0, 0, 0, 100 * MS]


def test_without_a_burst_the_jobs_begin_evenly(apis: ShardApis) -> None:
    began = run_all(apis, EVEN, 5, step=MS)
    assert [each - began[0] for each in began] == [0, 10 * MS, 20 * MS, 30 * MS, 40 * MS]


def test_a_cost_counts_several_times(apis: ShardApis) -> None:
    began = run_all(apis, RATE, 4, step=MS, cost=3)
    assert [each - began[0] for each in began] == [0, 300 * MS, 600 * MS, 900 * MS]


def test_a_late_worker_costs_nobody_a_turn(apis: ShardApis) -> None:
    for _ in range(12):
        apis.add(limits=[RATE])
    worker, count = apis.worker(), 0
    for _ in range(4):
        apis.let_in()
        count += len(worker.take(20).claims)
        # Two turns pass, which is less than the burst.
        apis.clock.advance(200 * MS)
    apis.let_in()
    count += len(worker.take(20).claims)
    assert count == 3 + 4 * 2


def test_the_dispatcher_wakes_when_the_next_job_may_begin(apis: ShardApis) -> None:
    for _ in range(5):
        apis.add(limits=[EVEN])
    apis.worker().take(10)
    promoted = apis.promote()
    assert (promoted.sleep_us, promoted.limits_to_let_in) == (10 * MS, [])
    apis.clock.advance(10 * MS)
    promoted = apis.promote()
    assert promoted.parked_in == ["default"]
    assert apis.promotion.let_in(promoted.limits_to_let_in, promoted.parked_in) == 1
    assert 0 < apis.promote().sleep_us <= 10 * MS


def test_a_job_that_never_began_gives_its_charge_back(apis: ShardApis) -> None:
    first, second = apis.add(limits=[EVEN]), apis.add(limits=[EVEN])
    worker = apis.worker()
    (claim,) = worker.take(1).claims
    worker.take(0, settle=[settlement(claim, Action.RELEASE)])
    assert ids(worker.take(1).claims) == [first]
    assert not worker.take(1).claims
    assert list(apis.parked()) == [second]


def test_each_attempt_is_charged(apis: ShardApis) -> None:
    apis.add(limits=[EVEN])
    worker = apis.worker()
    (claim,) = worker.take(1).claims
    worker.settle(claim, Action.RETRY)
    apis.promote()
    assert not worker.take(1).claims
    apis.clock.advance(10 * MS)
    apis.let_in()
    assert len(worker.take(1).claims) == 1


def test_a_clock_that_is_set_back_stops_nobody_for_longer_than_a_burst(apis: ShardApis) -> None:
    run_all(apis, RATE, 6, step=MS)
    apis.clock.advance(-3_600 * SECOND)
    apis.add(limits=[RATE])
    apis.worker().take(1)
    apis.clock.advance(300 * MS)
    apis.let_in()
    assert len(apis.worker().take(1).claims) == 1


def test_a_rate_and_a_number_of_running_jobs_hold_together(apis: ShardApis) -> None:
    for _ in range(6):
        apis.add(limits=[BOTH])
    worker = apis.worker()
    first = worker.take(10).claims
    assert len(first) == 2
    apis.clock.advance(SECOND)
    apis.let_in()
    assert not worker.take(10).claims
    worker.settle(first[0], Action.ACKNOWLEDGE)
    apis.let_in()
    assert len(worker.take(10).claims) == 1


def test_times_that_passed_are_removed(apis: ShardApis) -> None:
    for number in range(20):
        apis.add(limits=[LimitUse("rate", str(number))])
    apis.worker().take(30)
    assert apis.client.zcard(apis.keys("limit_times")) == 20
    apis.clock.advance(SECOND)
    apis.promote()
    assert apis.client.zcard(apis.keys("limit_times")) == 0


def test_a_thousand_values_are_kept_apart(apis: ShardApis) -> None:
    drafts = [apis.draft(limits=[LimitUse("rate", str(number % 200))]) for number in range(1_000)]
    for at in range(0, 1_000, 250):
        apis.enqueue(*drafts[at : at + 250])
    worker, claimed = apis.worker(), 0
    while (reply := worker.take(64)).claims or reply.has_more:
        claimed += len(reply.claims)
    assert claimed == 600
    apis.clock.advance(100 * MS)
    assert apis.let_in() == 200
