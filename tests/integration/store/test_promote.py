"""Promote: due jobs become ready in their order, never early; the step says when to come again, and trims."""

from collections.abc import Callable

import pytest

from django_delayq.dispatcher import Dispatcher
from tests.shard_apis import DAY, HOUR, MS, SECOND, START, Doors, ids

SWEEP = 5 * SECOND


@pytest.mark.parametrize("span", [1, SECOND, DAY, 365 * DAY, 3_650 * DAY])
def test_job_is_never_early_and_ready_at_its_microsecond(doors: Doors, span: int) -> None:
    raw_id = doors.add(due=START + span)
    doors.clock.advance(span - 1)
    early = doors.promote()
    assert (early.moved, early.sleep_us) == (0, 1)
    assert doors.where(raw_id) == ["scheduled:default"]
    doors.clock.advance(1)
    assert doors.promote().moved == 1
    assert doors.where(raw_id) == ["ready:default"]


def test_job_a_microsecond_from_due_stays_behind_when_its_queue_is_promoted(doors: Doors) -> None:
    due, early = doors.add(due=START + SECOND), doors.add(due=START + SECOND + 1)
    doors.clock.advance(SECOND)
    promoted = doors.promote()
    assert (promoted.moved, promoted.sleep_us) == (1, 1)
    assert (doors.where(due), doors.where(early)) == (["ready:default"], ["scheduled:default"])


def test_sleep_is_exact_and_never_longer_than_a_sweep(doors: Doors) -> None:
    assert doors.promote().sleep_us == SWEEP
    doors.add(delay=SWEEP + 1)
    assert doors.promote().sleep_us == SWEEP
    doors.add(delay=1_234_567)
    assert doors.promote().sleep_us == 1_234_567


def test_sweep_is_shorter_for_short_leases(make_doors: Callable[..., Doors]) -> None:
    assert make_doors(LEASE=2).promote().sleep_us == SECOND


def test_wake_at_is_the_moment_the_sleep_ends(doors: Doors) -> None:
    doors.add(delay=2_345_678)
    promoted = doors.promote()
    assert int(doors.client.get(doors.keys("next_promotion"))) == START + promoted.sleep_us == START + 2_345_678


def test_sleep_is_none_while_more_is_due(doors: Doors) -> None:
    doors.enqueue(*[doors.draft(delay=1) for _ in range(3)])
    doors.clock.advance(SECOND)
    first, second = doors.promote(limit=2), doors.promote(limit=2)
    assert (first.moved, first.sleep_us) == (2, 0)
    assert (second.moved, second.sleep_us) == (1, SWEEP)
    assert int(doors.client.get(doors.keys("next_promotion"))) == START + SECOND + SWEEP


def test_end_of_a_lease_ends_the_sleep(make_doors: Callable[..., Doors]) -> None:
    doors = make_doors(LEASE=12)
    doors.add()
    doors.worker().take()
    doors.clock.advance(8 * SECOND)
    assert doors.promote().sleep_us == 4 * SECOND


def test_lapsed_leases_are_told_and_do_not_spin_the_sleep(doors: Doors) -> None:
    doors.add()
    (claim,) = doors.worker().take().claims
    doors.clock.advance(30 * SECOND - 1)
    assert doors.promote().expired_leases == []
    doors.clock.advance(1)
    promoted = doors.promote()
    assert promoted.expired_leases == [claim.lease]
    assert promoted.sleep_us == SWEEP


def test_jobs_are_ready_in_the_order_of_their_due_times_not_of_their_promotion(doors: Doors) -> None:
    later, sooner = doors.add(delay=3 * MS), doors.add(delay=2 * MS)
    soonest = doors.add(delay=MS)
    doors.clock.advance(HOUR)
    doors.promote(limit=1)
    doors.promote(limit=1)
    doors.promote(limit=1)
    assert list(doors.ready()) == [soonest, sooner, later]


def test_jobs_due_at_one_instant_keep_the_order_of_their_making(doors: Doors) -> None:
    drafts = [doors.draft(number, delay=SECOND) for number in range(400)]
    doors.enqueue(*reversed(drafts))
    doors.clock.advance(DAY)
    assert [doors.promote(limit=64).moved for _ in range(8)] == [64] * 6 + [16, 0]
    assert list(doors.ready()) == [draft.job.raw_id for draft in drafts]


def test_priority_counts_more_than_any_lateness(doors: Doors) -> None:
    made = {priority: doors.add(priority=priority, delay=(101 + priority) * DAY) for priority in range(-100, 101)}
    doors.clock.advance(202 * DAY)
    assert doors.promote().moved == 201
    assert list(doors.ready()) == [made[priority] for priority in range(100, -101, -1)]


def test_due_job_comes_before_ordinary_ones_of_its_priority(doors: Doors) -> None:
    ordinary = doors.add()
    due = doors.add(delay=HOUR - MS)
    doors.clock.advance(HOUR)
    doors.promote()
    assert list(doors.ready()) == [due, ordinary]


def test_nothing_starves_longer_than_the_head_start(doors: Doors) -> None:
    ordinary = doors.add()
    due = doors.add(delay=HOUR + MS)
    doors.clock.advance(2 * HOUR)
    doors.promote()
    assert list(doors.ready()) == [ordinary, due]


def test_head_start_of_zero_makes_all_jobs_equal(make_doors: Callable[..., Doors]) -> None:
    doors = make_doors(DUE_FIRST=0)
    ordinary = doors.add()
    due = doors.add(delay=MS)
    doors.clock.advance(HOUR)
    doors.promote()
    assert list(doors.ready()) == [ordinary, due]


def test_queues_take_turns(doors: Doors) -> None:
    doors.enqueue(*[doors.draft(queue="big", delay=MS) for _ in range(300)])
    doors.enqueue(*[doors.draft(queue="small", delay=SECOND) for _ in range(60)])
    doors.clock.advance(HOUR)
    assert doors.promote(limit=100).moved == 100
    assert doors.inspection.counts().ready == {"big": 50, "small": 50}


def test_queue_with_the_oldest_job_comes_first(doors: Doors) -> None:
    doors.add(queue="a", delay=2 * SECOND)
    doors.add(queue="b", delay=SECOND)
    doors.add(queue="c", delay=3 * SECOND)
    doors.clock.advance(HOUR)
    order = []
    for _ in range(3):
        doors.promote(limit=1)
        order += [queue for queue, count in doors.inspection.counts().ready.items() if count and queue not in order]
    assert order == ["b", "a", "c"]


def test_every_due_queue_gets_its_turn_with_more_queues_than_places(doors: Doors) -> None:
    doors.enqueue(*[doors.draft(queue=f"q{n:02}", delay=SECOND + n) for n in range(20) for _ in range(2)])
    doors.clock.advance(HOUR)
    moved = [doors.promote(limit=6).moved for _ in range(8)]
    assert sum(moved) == 40
    assert max(moved) <= 6


def test_bells_ring_for_the_queues_that_got_jobs(doors: Doors) -> None:
    doors.add(queue="a", delay=MS)
    doors.add(queue="b", delay=HOUR)
    doors.clock.advance(SECOND)
    doors.promote()
    assert doors.rings(doors.keys.notify("a"), doors.keys.notify("b")) == [1, 0]


def test_second_dispatcher_moves_nothing_twice(doors: Doors) -> None:
    raw_id = doors.add(delay=1)
    doors.clock.advance(1)
    assert [doors.promote().moved, doors.promote().moved] == [1, 0]
    assert doors.where(raw_id) == ["ready:default"]


def test_each_step_names_the_queues_that_are_due_by_the_next(doors: Doors) -> None:
    doors.add(queue="a")
    doors.add(queue="later", delay=HOUR)
    doors.add(queue="b", delay=SECOND)
    promoted = doors.promotion.promote([])
    assert (promoted.queues, promoted.sleep_us) == (["b"], SECOND)
    doors.clock.advance(SECOND)
    assert doors.promotion.promote(promoted.queues).moved == 1


def test_a_queue_that_is_due_and_was_not_named_ends_the_sleep(doors: Doors) -> None:
    doors.add(queue="b", delay=1)
    doors.clock.advance(1)
    promoted = doors.promotion.promote(["a"])
    assert (promoted.moved, promoted.sleep_us, promoted.queues) == (0, 0, ["b"])
    assert Dispatcher(doors.shard, doors.promotion).promote().moved == 1


def test_promotion_keeps_the_key_held(doors: Doors) -> None:
    raw_id = doors.add(key="k", delay=1)
    doors.clock.advance(1)
    doors.promote()
    assert doors.enqueue(doors.draft(key="k")).held == {0: raw_id}


def test_dead_letters_are_trimmed_by_age_with_all_that_belongs_to_them(make_doors: Callable[..., Doors]) -> None:
    doors = make_doors(DEAD_MAX_AGE=10)
    old = doors.add_dead(key="k")
    doors.clock.advance(1)
    young = doors.add_dead()
    doors.clock.advance(10 * SECOND - 2)
    assert doors.promote().trimmed == 0
    doors.clock.advance(1)
    assert doors.promote().trimmed == 1
    assert doors.traces(old) == []
    assert doors.where(young) == ["dead_letters"]
    assert doors.client.hlen(doors.keys("dead_bodies")) == 1


def test_worker_unseen_for_an_hour_is_forgotten_with_its_exchange(doors: Doors) -> None:
    gone, seen = doors.worker(b"gone----"), doors.worker(b"seen----")
    gone.take(0, description="host/1")
    seen.take(0, description="host/2")
    doors.clock.advance(HOUR - 1)
    doors.promote()
    assert doors.client.hlen(doors.keys("exchanges")) == 2
    seen.take(0)
    doors.clock.advance(1)
    doors.promote()
    assert doors.client.zrange(doors.keys("workers"), 0, -1) == [b"seen----"]
    assert doors.client.hgetall(doors.keys("worker_names")) == {b"seen----": b"host/2"}
    assert doors.client.hkeys(doors.keys("exchanges")) == [b"seen----"]


def test_full_memory_does_not_stop_promotion(own_doors: Doors) -> None:
    raw_id = own_doors.add(delay=SECOND)
    own_doors.clock.advance(SECOND)
    own_doors.fill_memory()
    assert own_doors.promote().moved == 1
    assert own_doors.where(raw_id) == ["ready:default"]
    assert own_doors.client.exists(own_doors.keys("next_promotion"))


def test_full_memory_does_not_stop_promotion_of_nothing(own_doors: Doors) -> None:
    own_doors.fill_memory()
    assert own_doors.promote().sleep_us == SWEEP


def test_flushed_scripts_are_loaded_again(doors: Doors) -> None:
    doors.add(delay=1)
    doors.promote()
    doors.client.script_flush()
    doors.clock.advance(1)
    assert doors.promote().moved == 1
    assert len(ids(doors.worker().take(5).claims)) == 1
