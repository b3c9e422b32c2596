"""Promote: due jobs become ready in order, never early; it returns the next time, and removes old entries."""

from collections.abc import Callable

import pytest

from django_delayq.dispatcher.dispatcher import Dispatcher
from tests.shard_apis import DAY, HOUR, MS, SECOND, START, ShardApis, ids

SWEEP = 5 * SECOND


@pytest.mark.parametrize("span", [1, SECOND, DAY, 365 * DAY, 3_650 * DAY])
def test_job_is_never_early_and_ready_at_its_microsecond(apis: ShardApis, span: int) -> None:
    raw_id = apis.add(due=START + span)
    apis.clock.advance(span - 1)
    early = apis.promote()
    assert (early.moved, early.sleep_us) == (0, 1)
    assert apis.where(raw_id) == ["scheduled:default"]
    apis.clock.advance(1)
    assert apis.promote().moved == 1
    assert apis.where(raw_id) == ["ready:default"]


def test_job_a_microsecond_from_due_stays_behind_when_its_queue_is_promoted(apis: ShardApis) -> None:
    due, early = apis.add(due=START + SECOND), apis.add(due=START + SECOND + 1)
    apis.clock.advance(SECOND)
    promoted = apis.promote()
    assert (promoted.moved, promoted.sleep_us) == (1, 1)
    assert (apis.where(due), apis.where(early)) == (["ready:default"], ["scheduled:default"])


def test_sleep_is_exact_and_never_longer_than_a_sweep(apis: ShardApis) -> None:
    assert apis.promote().sleep_us == SWEEP
    apis.add(delay=SWEEP + 1)
    assert apis.promote().sleep_us == SWEEP
    apis.add(delay=1_234_567)
    assert apis.promote().sleep_us == 1_234_567


def test_sweep_is_shorter_for_short_leases(make_apis: Callable[..., ShardApis]) -> None:
    assert make_apis(LEASE=2).promote().sleep_us == SECOND


def test_the_next_promotion_is_when_the_sleep_ends(apis: ShardApis) -> None:
    apis.add(delay=2_345_678)
    promoted = apis.promote()
    assert int(apis.client.get(apis.keys("next_promotion"))) == START + promoted.sleep_us == START + 2_345_678


def test_sleep_is_none_while_more_is_due(apis: ShardApis) -> None:
    apis.enqueue(*[apis.draft(delay=1) for _ in range(3)])
    apis.clock.advance(SECOND)
    first, second = apis.promote(limit=2), apis.promote(limit=2)
    assert (first.moved, first.sleep_us) == (2, 0)
    assert (second.moved, second.sleep_us) == (1, SWEEP)
    assert int(apis.client.get(apis.keys("next_promotion"))) == START + SECOND + SWEEP


def test_end_of_a_lease_ends_the_sleep(make_apis: Callable[..., ShardApis]) -> None:
    apis = make_apis(LEASE=12)
    apis.add()
    apis.worker().take()
    apis.clock.advance(8 * SECOND)
    assert apis.promote().sleep_us == 4 * SECOND


def test_expired_leases_are_returned_and_do_not_end_the_sleep(apis: ShardApis) -> None:
    apis.add()
    (claim,) = apis.worker().take().claims
    apis.clock.advance(30 * SECOND - 1)
    assert apis.promote().expired_leases == []
    apis.clock.advance(1)
    promoted = apis.promote()
    assert promoted.expired_leases == [claim.lease]
    assert promoted.sleep_us == SWEEP


def test_jobs_are_ready_in_the_order_of_their_due_times_not_of_their_promotion(apis: ShardApis) -> None:
    later, sooner = apis.add(delay=3 * MS), apis.add(delay=2 * MS)
    soonest = apis.add(delay=MS)
    apis.clock.advance(HOUR)
    apis.promote(limit=1)
    apis.promote(limit=1)
    apis.promote(limit=1)
    assert list(apis.ready()) == [soonest, sooner, later]


def test_jobs_due_at_the_same_time_keep_the_order_of_creation(apis: ShardApis) -> None:
    drafts = [apis.draft(number, delay=SECOND) for number in range(400)]
    apis.enqueue(*reversed(drafts))
    apis.clock.advance(DAY)
    assert [apis.promote(limit=64).moved for _ in range(8)] == [64] * 6 + [16, 0]
    assert list(apis.ready()) == [draft.job.raw_id for draft in drafts]


def test_priority_counts_more_than_any_lateness(apis: ShardApis) -> None:
    made = {priority: apis.add(priority=priority, delay=(101 + priority) * DAY) for priority in range(-100, 101)}
    apis.clock.advance(202 * DAY)
    assert apis.promote().moved == 201
    assert list(apis.ready()) == [made[priority] for priority in range(100, -101, -1)]


def test_due_job_comes_before_ordinary_ones_of_its_priority(apis: ShardApis) -> None:
    ordinary = apis.add()
    due = apis.add(delay=HOUR - MS)
    apis.clock.advance(HOUR)
    apis.promote()
    assert list(apis.ready()) == [due, ordinary]


def test_nothing_starves_longer_than_the_head_start(apis: ShardApis) -> None:
    ordinary = apis.add()
    due = apis.add(delay=HOUR + MS)
    apis.clock.advance(2 * HOUR)
    apis.promote()
    assert list(apis.ready()) == [ordinary, due]


def test_head_start_of_zero_makes_all_jobs_equal(make_apis: Callable[..., ShardApis]) -> None:
    apis = make_apis(DUE_FIRST=0)
    ordinary = apis.add()
    due = apis.add(delay=MS)
    apis.clock.advance(HOUR)
    apis.promote()
    assert list(apis.ready()) == [ordinary, due]


def test_queues_take_turns(apis: ShardApis) -> None:
    apis.enqueue(*[apis.draft(queue="big", delay=MS) for _ in range(300)])
    apis.enqueue(*[apis.draft(queue="small", delay=SECOND) for _ in range(60)])
    apis.clock.advance(HOUR)
    assert apis.promote(limit=100).moved == 100
    assert apis.inspection.counts().ready == {"big": 50, "small": 50}


def test_queue_with_the_oldest_job_comes_first(apis: ShardApis) -> None:
    apis.add(queue="a", delay=2 * SECOND)
    apis.add(queue="b", delay=SECOND)
    apis.add(queue="c", delay=3 * SECOND)
    apis.clock.advance(HOUR)
    order = []
    for _ in range(3):
        apis.promote(limit=1)
        order += [queue for queue, count in apis.inspection.counts().ready.items() if count and queue not in order]
    assert order == ["b", "a", "c"]


def test_every_due_queue_gets_its_turn_with_more_queues_than_places(apis: ShardApis) -> None:
    apis.enqueue(*[apis.draft(queue=f"q{n:02}", delay=SECOND + n) for n in range(20) for _ in range(2)])
    apis.clock.advance(HOUR)
    moved = [apis.promote(limit=6).moved for _ in range(8)]
    assert sum(moved) == 40
    assert max(moved) <= 6


def test_queues_that_got_jobs_are_notified(apis: ShardApis) -> None:
    apis.add(queue="a", delay=MS)
    apis.add(queue="b", delay=HOUR)
    apis.clock.advance(SECOND)
    apis.promote()
    assert apis.notifications(apis.keys.notify("a"), apis.keys.notify("b")) == [1, 0]


def test_second_dispatcher_moves_nothing_twice(apis: ShardApis) -> None:
    raw_id = apis.add(delay=1)
    apis.clock.advance(1)
    assert [apis.promote().moved, apis.promote().moved] == [1, 0]
    assert apis.where(raw_id) == ["ready:default"]


def test_each_step_names_the_queues_that_are_due_by_the_next(apis: ShardApis) -> None:
    apis.add(queue="a")
    apis.add(queue="later", delay=HOUR)
    apis.add(queue="b", delay=SECOND)
    promoted = apis.promotion.promote([])
    assert (promoted.queues, promoted.sleep_us) == (["b"], SECOND)
    apis.clock.advance(SECOND)
    assert apis.promotion.promote(promoted.queues).moved == 1


def test_a_queue_that_is_due_and_was_not_named_ends_the_sleep(apis: ShardApis) -> None:
    apis.add(queue="b", delay=1)
    apis.clock.advance(1)
    promoted = apis.promotion.promote(["a"])
    assert (promoted.moved, promoted.sleep_us, promoted.queues) == (0, 0, ["b"])
    assert Dispatcher(apis.shard, apis.promotion).promote().moved == 1


def test_promotion_keeps_the_key_held(apis: ShardApis) -> None:
    raw_id = apis.add(key="k", delay=1)
    apis.clock.advance(1)
    apis.promote()
    assert apis.enqueue(apis.draft(key="k")).held == {0: raw_id}


def test_dead_letters_are_removed_by_age_with_all_their_records(make_apis: Callable[..., ShardApis]) -> None:
    apis = make_apis(DEAD_MAX_AGE=10)
    old = apis.add_dead(key="k")
    apis.clock.advance(1)
    young = apis.add_dead()
    apis.clock.advance(10 * SECOND - 2)
    assert apis.promote().trimmed == 0
    apis.clock.advance(1)
    assert apis.promote().trimmed == 1
    assert apis.traces(old) == []
    assert apis.where(young) == ["dead_letters"]
    assert apis.client.hlen(apis.keys("dead_bodies")) == 1


def test_a_worker_unseen_for_an_hour_is_removed_with_its_exchange(apis: ShardApis) -> None:
    gone, seen = apis.worker(b"gone----"), apis.worker(b"seen----")
    gone.take(0, description="host/1")
    seen.take(0, description="host/2")
    apis.clock.advance(HOUR - 1)
    apis.promote()
    assert apis.client.hlen(apis.keys("exchanges")) == 2
    seen.take(0)
    apis.clock.advance(1)
    apis.promote()
    assert apis.client.zrange(apis.keys("workers"), 0, -1) == [b"seen----"]
    assert apis.client.hgetall(apis.keys("worker_names")) == {b"seen----": b"host/2"}
    assert apis.client.hkeys(apis.keys("exchanges")) == [b"seen----"]


def test_full_memory_does_not_stop_promotion(own_apis: ShardApis) -> None:
    raw_id = own_apis.add(delay=SECOND)
    own_apis.clock.advance(SECOND)
    own_apis.fill_memory()
    assert own_apis.promote().moved == 1
    assert own_apis.where(raw_id) == ["ready:default"]
    assert own_apis.client.exists(own_apis.keys("next_promotion"))


def test_full_memory_does_not_stop_promotion_of_nothing(own_apis: ShardApis) -> None:
    own_apis.fill_memory()
    assert own_apis.promote().sleep_us == SWEEP


def test_flushed_scripts_are_loaded_again(apis: ShardApis) -> None:
    apis.add(delay=1)
    apis.promote()
    apis.client.script_flush()
    apis.clock.advance(1)
    assert apis.promote().moved == 1
    assert len(ids(apis.worker().take(5).claims)) == 1
