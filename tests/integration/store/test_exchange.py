"""Exchange: claims are taken best first under a lease, outcomes are fenced, and the step may be sent again."""

import random
from collections.abc import Callable

import pytest

from django_delayq.exceptions import BadBody, NewerBody, StaleExchange
from django_delayq.outcome import Settle
from tests.doors import DAY, HOUR, LARGE_TEXT, MS, SECOND, START, Doors, ids, settlement

LEASE = 30 * SECOND
EVERY_OUTCOME = pytest.mark.parametrize("outcome", list(Settle))


def suspect(doors: Doors) -> bytes:
    """Add a job that came back from a crash, ready again."""
    raw_id = doors.add()
    worker = doors.worker()
    (claim,) = [claim for claim in worker.take(64).claims if claim.raw_id == raw_id]
    worker.settle(claim, Settle.RETRY, suspect=True)
    doors.promote()
    return raw_id


def test_claim_puts_a_job_under_a_lease_and_nowhere_else(doors: Doors) -> None:
    raw_id = doors.add()
    (claim,) = doors.worker().take().claims
    assert doors.where(raw_id) == ["leases"]
    assert doors.scores(doors.keys("leases")) == {raw_id: START + LEASE}
    assert (claim.raw_id, claim.claimed_us, claim.attempt, claim.queue) == (raw_id, START, 1, "default")
    assert claim.due_us == START // MS * MS


def test_claim_tells_the_due_time_of_a_delayed_job(doors: Doors) -> None:
    doors.add(due=START + 7_654_321)
    doors.clock.turn(HOUR)
    doors.promote()
    assert doors.worker().take().claims[0].due_us == (START + 7_654_321) // MS * MS


def test_two_workers_never_hold_one_job(doors: Doors) -> None:
    drafts = [doors.draft(number) for number in range(50)]
    doors.enqueue(*drafts)
    first, second = doors.worker().take(30).claims, doors.worker().take(30).claims
    assert ids(first) + ids(second) == [draft.job.raw_id for draft in drafts]


def test_claims_come_in_the_order_of_priority_then_of_making(doors: Doors) -> None:
    drafts = [doors.draft(number, priority=number % 201 - 100) for number in range(402)]
    doors.enqueue(*random.Random(3).sample(drafts, len(drafts)))
    worker, taken = doors.worker(), []
    while claims := worker.take(64).claims:
        taken += ids(claims)
    assert taken == [draft.job.raw_id for draft in sorted(drafts, key=lambda draft: -draft.job.priority)]


def test_best_rank_of_all_queues_comes_first(doors: Doors) -> None:
    low = doors.add(queue="a", priority=1)
    high = doors.add(queue="b", priority=2)
    doors.clock.turn(MS)
    later = doors.add(queue="c", priority=2)
    worker = doors.worker()
    assert ids(worker.take(2, "a", "b", "c").claims) == [high, later]
    assert ids(worker.take(2, "a", "b", "c").claims) == [low]


def test_named_queues_are_emptied_strictly_in_their_order(doors: Doors) -> None:
    first = [doors.add(queue="a", priority=-100) for _ in range(3)]
    second = [doors.add(queue="b", priority=100) for _ in range(3)]
    worker = doors.worker()
    assert ids(worker.take(2, "a", "b", strict=True).claims) == first[:2]
    answer = worker.take(3, "a", "b", strict=True)
    assert ids(answer.claims) == [first[2], *second[:2]]
    assert [claim.queue for claim in answer.claims] == ["a", "b", "b"]
    assert answer.more


def test_queues_that_are_not_served_are_left_alone(doors: Doors) -> None:
    raw_id = doors.add(queue="other")
    assert doors.worker().take(5).claims == []
    assert doors.where(raw_id) == ["ready:other"]


def test_nothing_wanted_is_nothing_taken(doors: Doors) -> None:
    raw_id = doors.add()
    assert doors.worker().take(0).claims == []
    assert doors.where(raw_id) == ["ready:default"]


def test_acknowledge_leaves_nothing_of_a_job(doors: Doors) -> None:
    raw_id = doors.add(key="k")
    worker = doors.worker()
    assert not worker.settle(worker.take().claims[0], Settle.ACKNOWLEDGE).lost
    assert doors.traces(raw_id) == []
    assert doors.where(raw_id) == []


def test_acknowledge_after_retries_leaves_nothing_of_a_job(doors: Doors) -> None:
    raw_id = doors.add()
    worker = doors.worker()
    for _ in range(2):
        worker.settle(worker.take().claims[0], Settle.RETRY)
        doors.promote()
    worker.settle(worker.take().claims[0], Settle.ACKNOWLEDGE)
    assert doors.traces(raw_id) == []


@pytest.mark.parametrize("delay", [1, SECOND, DAY, 365 * DAY, 3_650 * DAY])
def test_retry_comes_back_at_the_exact_microsecond_with_its_attempt_counted(doors: Doors, delay: int) -> None:
    raw_id = doors.add()
    worker = doors.worker()
    doors.clock.turn(11)
    worker.settle(worker.take().claims[0], Settle.RETRY, delay=delay)
    assert doors.schedule() == {raw_id: START + 11 + delay}
    doors.clock.turn(delay)
    doors.promote()
    (claim,) = worker.take().claims
    assert (claim.attempt, claim.attempts.last_error) == (2, "as asked")


def test_retry_rings_the_alarm_when_it_is_the_next_thing_to_do(doors: Doors) -> None:
    doors.add()
    worker = doors.worker()
    claim = worker.take().claims[0]
    doors.promote()
    doors.rings(doors.keys("alarm"))
    worker.settle(claim, Settle.RETRY, delay=100 * MS)
    assert doors.rings(doors.keys("alarm")) == [1]


def test_retry_far_ahead_wakes_nobody(doors: Doors) -> None:
    doors.add()
    worker = doors.worker()
    claim = worker.take().claims[0]
    doors.promote()
    doors.rings(doors.keys("alarm"))
    worker.settle(claim, Settle.RETRY, delay=HOUR)
    assert doors.rings(doors.keys("alarm")) == [0]


def test_dead_letter_keeps_body_and_history_and_lets_the_key_go(doors: Doors) -> None:
    raw_id = doors.add("argument", key="k")
    worker = doors.worker()
    doors.clock.turn(5)
    worker.settle(worker.take().claims[0], Settle.DEAD_LETTER, error="the end")
    assert doors.traces(raw_id) == ["dead_bodies", "dead_letters"]
    letter = doors.inspection.dead_letter(raw_id)
    assert letter is not None
    assert letter.job is not None
    assert (letter.died_us, letter.job.args) == (START + 5, ["argument"])
    assert (letter.attempts.ended, letter.attempts.last_error) == (1, "the end")


def test_released_job_is_back_in_its_old_place_and_its_attempt_is_uncounted(doors: Doors) -> None:
    drafts = [doors.draft(number) for number in range(3)]
    doors.enqueue(*drafts)
    ranks = doors.ready()
    worker = doors.worker()
    claims = worker.take(2).claims
    doors.clock.turn(HOUR)
    doors.rings(doors.keys.bell("default"))
    worker.take(0, settle=[settlement(claim, Settle.RELEASE) for claim in claims])
    assert doors.ready() == ranks
    assert doors.rings(doors.keys.bell("default")) == [1]
    assert [claim.attempt for claim in worker.take(3).claims] == [1, 1, 1]


def test_job_released_and_taken_in_one_exchange_has_a_new_lease(doors: Doors) -> None:
    doors.add()
    worker = doors.worker()
    (old,) = worker.take().claims
    (new,) = worker.take(1, settle=[settlement(old, Settle.RELEASE)]).claims
    assert (new.raw_id, new.attempt) == (old.raw_id, 1)
    assert new.lease != old.lease
    assert worker.settle(old, Settle.ACKNOWLEDGE).lost == {old.lease}
    assert not worker.settle(new, Settle.ACKNOWLEDGE).lost


def test_one_exchange_settles_every_way_and_takes_the_next(doors: Doors) -> None:
    made = [doors.add(queue=queue) for queue in ("a", "b", "a", "b", "a")]
    worker = doors.worker()
    claims = worker.take(4, "a", "b").claims
    by_id = {claim.raw_id: claim for claim in claims}
    left = next(raw_id for raw_id in made if raw_id not in by_id)
    done, retried, dead, released = claims
    answer = worker.take(
        1,
        "b",
        "a",
        settle=[
            settlement(done, Settle.ACKNOWLEDGE),
            settlement(retried, Settle.RETRY, delay=HOUR),
            settlement(dead, Settle.DEAD_LETTER),
            settlement(released, Settle.RELEASE),
        ],
    )
    assert not answer.lost
    assert len(answer.claims) == 1
    assert doors.where(done.raw_id) == []
    assert doors.where(retried.raw_id) == [f"schedule:{retried.queue}"]
    assert doors.where(dead.raw_id) == ["dead_letters"]
    places = [doors.where(released.raw_id), doors.where(left)]
    assert sorted(place[0].split(":")[0] for place in places) == ["leases", "ready"]


@EVERY_OUTCOME
def test_worker_whose_lease_was_given_to_another_settles_nothing(doors: Doors, outcome: Settle) -> None:
    raw_id = doors.add()
    late, next_one = doors.worker(), doors.worker()
    (old,) = late.take().claims
    doors.lapse()
    (new,) = next_one.take().claims
    answer = late.settle(old, outcome)
    assert answer.lost == {old.lease}
    assert doors.where(raw_id) == ["leases"]
    assert doors.scores(doors.keys("leases")) == {raw_id: doors.clock.now_us + LEASE}
    assert not next_one.settle(new, Settle.ACKNOWLEDGE).lost


@EVERY_OUTCOME
def test_outcome_handed_in_twice_counts_once(doors: Doors, outcome: Settle) -> None:
    doors.add()
    worker = doors.worker()
    (claim,) = worker.take().claims
    assert not worker.settle(claim, outcome).lost
    places = doors.where(claim.raw_id)
    assert worker.settle(claim, Settle.DEAD_LETTER).lost == {claim.lease}
    assert doors.where(claim.raw_id) == places


@EVERY_OUTCOME
def test_lease_past_its_end_still_settles_while_nobody_took_it_back(doors: Doors, outcome: Settle) -> None:
    doors.add()
    worker = doors.worker()
    (claim,) = worker.take().claims
    doors.clock.turn(2 * LEASE)
    assert not worker.settle(claim, outcome).lost


def test_lost_outcome_does_not_touch_those_beside_it(doors: Doors) -> None:
    doors.add()
    worker = doors.worker()
    (lost,) = worker.take().claims
    doors.lapse()
    other = doors.worker().take().claims
    doors.add()
    (kept,) = worker.take().claims
    answer = worker.take(0, settle=[settlement(claim, Settle.ACKNOWLEDGE) for claim in (lost, kept)])
    assert answer.lost == {lost.lease}
    assert doors.where(kept.raw_id) == []
    assert doors.where(other[0].raw_id) == ["leases"]


def test_exchange_sent_again_gets_the_same_claims(doors: Doors) -> None:
    doors.enqueue(*[doors.draft(number) for number in range(5)])
    worker = doors.worker()
    first = worker.take(3)
    doors.clock.turn(SECOND)
    second = worker.again()
    assert [claim.lease for claim in second.claims] == [claim.lease for claim in first.claims]
    assert [claim.job for claim in second.claims] == [claim.job for claim in first.claims]
    assert [claim.rank for claim in second.claims] == [claim.rank for claim in first.claims]
    assert len(doors.ready()) == 2


def test_exchange_sent_again_names_the_queues_of_its_claims(doors: Doors) -> None:
    doors.add(queue="b")
    doors.add(queue="a", priority=5)
    worker = doors.worker()
    first = worker.take(2, "a", "b")
    assert [claim.queue for claim in worker.again().claims] == [claim.queue for claim in first.claims] == ["a", "b"]


def test_exchange_sent_again_gives_only_what_is_still_held(doors: Doors) -> None:
    lapsed = doors.add()
    worker = doors.worker()
    worker.take()
    doors.lapse()
    assert worker.again().claims == []
    assert doors.where(lapsed) == ["ready:default"]


def test_exchange_sent_again_does_not_settle_twice(doors: Doors) -> None:
    raw_id = doors.add()
    worker = doors.worker()
    (claim,) = worker.take().claims
    worker.settle(claim, Settle.RETRY, delay=SECOND)
    doors.clock.turn(SECOND)
    assert not worker.again().lost
    assert doors.schedule() == {raw_id: START + SECOND}


def test_exchange_sent_again_tells_the_same_losses(doors: Doors) -> None:
    doors.add()
    worker = doors.worker()
    (claim,) = worker.take().claims
    doors.lapse()
    doors.worker().take()
    doors.add()
    first = worker.take(1, settle=[settlement(claim, Settle.ACKNOWLEDGE)])
    second = worker.again()
    assert second.lost == first.lost == {claim.lease}
    assert ids(second.claims) == ids(first.claims) != []


def test_exchange_sent_again_after_a_script_flush_is_still_the_same(doors: Doors) -> None:
    doors.add()
    worker = doors.worker()
    first = worker.take()
    doors.client.script_flush()
    assert [claim.lease for claim in worker.again().claims] == [claim.lease for claim in first.claims]


def test_earlier_exchange_is_refused_and_changes_nothing(doors: Doors) -> None:
    worker = doors.worker()
    worker.take()
    delayed = worker.last
    assert delayed is not None
    worker.take()
    raw_id = doors.add()
    with pytest.raises(StaleExchange):
        worker.door.exchange(delayed)
    assert doors.where(raw_id) == ["ready:default"]


def test_workers_do_not_disturb_one_anothers_numbers(doors: Doors) -> None:
    first, second = doors.worker(), doors.worker()
    for _ in range(3):
        first.take()
    raw_id = doors.add()
    assert ids(second.take().claims) == [raw_id]


def test_batch_ends_before_a_large_body_which_then_comes_alone(doors: Doors) -> None:
    small, large, last = doors.add(), doors.add(LARGE_TEXT), doors.add()
    worker = doors.worker()
    answers = [worker.take(8) for _ in range(3)]
    assert [ids(answer.claims) for answer in answers] == [[small], [large], [last]]
    assert [answer.more for answer in answers] == [True, True, False]


def test_batch_ends_before_a_suspect_which_then_comes_alone(doors: Doors) -> None:
    one = suspect(doors)
    doors.clock.turn(SECOND)
    two = doors.add(priority=1)
    three = doors.add()
    worker = doors.worker()
    answers = [worker.take(8) for _ in range(3)]
    assert [ids(answer.claims) for answer in answers] == [[two], [one], [three]]
    assert answers[1].claims[0].attempts.suspect


def test_job_that_failed_without_a_crash_is_no_suspect(doors: Doors) -> None:
    doors.add()
    worker = doors.worker()
    worker.settle(worker.take().claims[0], Settle.RETRY)
    doors.promote()
    doors.add()
    assert len(worker.take(8).claims) == 2


def test_leftovers_of_a_batch_that_ended_early_ring_again(doors: Doors) -> None:
    doors.add()
    doors.add(LARGE_TEXT)
    doors.rings(doors.keys.bell("default"))
    doors.worker().take(8)
    assert doors.rings(doors.keys.bell("default")) == [1]


@pytest.mark.parametrize("strict", [False, True])
def test_work_left_behind_in_any_served_queue_rings_again(doors: Doors, strict: bool) -> None:
    bells = [doors.keys.bell(queue) for queue in "abc"]
    doors.enqueue(*[doors.draft(queue=queue) for queue in "aabc"])
    doors.rings(*bells)
    worker = doors.worker()
    assert worker.take(2, "a", "b", "c", strict=strict).more
    assert doors.rings(*bells)[1:] == [1, 1]
    assert not worker.take(2, "a", "b", "c", strict=strict).more
    assert doors.rings(*bells) == [0, 0, 0]


def test_leftover_of_a_queue_not_served_does_not_ring(doors: Doors) -> None:
    doors.add(queue="a")
    doors.add(queue="b")
    doors.rings(doors.keys.bell("b"))
    doors.worker().take(1, "a")
    assert doors.rings(doors.keys.bell("b")) == [0]


def test_worker_is_told_when_nobody_promotes(doors: Doors) -> None:
    worker = doors.worker()
    assert worker.take().overdue
    doors.add(delay=2 * SECOND)
    doors.promote()
    assert not worker.take().overdue
    # One second of grace after the moment that promote promised.
    doors.clock.turn(3 * SECOND)
    assert not worker.take().overdue
    doors.clock.turn(1)
    assert worker.take().overdue


def test_worker_is_told_the_number_of_queues(doors: Doors) -> None:
    doors.add(queue="a")
    doors.add(queue="b")
    assert doors.worker().take(1, "a").queue_count == 2


def test_worker_is_seen_at_each_exchange_and_described_once(doors: Doors) -> None:
    worker = doors.worker()
    worker.take(description="host/7")
    doors.clock.turn(SECOND)
    worker.take()
    assert doors.client.zscore(doors.keys("workers"), worker.code) == START + SECOND
    assert doors.client.hget(doors.keys("descriptions"), worker.code) == b"host/7"


@pytest.mark.parametrize(
    ("body", "fault"), [(None, BadBody), (b"", BadBody), (b"\x01garbage", BadBody), (b"\xff", NewerBody)]
)
def test_claim_of_a_damaged_body_says_what_is_wrong(doors: Doors, body: bytes | None, fault: type[Exception]) -> None:
    raw_id = doors.add()
    bodies = doors.keys("bodies")
    if body is None:
        doors.client.hdel(bodies, raw_id)
    else:
        whole = doors.client.hget(bodies, raw_id)
        doors.client.hset(bodies, raw_id, body + whole[1:] if body == b"\xff" else body)
    worker = doors.worker()
    (claim,) = worker.take().claims
    assert claim.job is None
    assert type(claim.fault) is fault
    assert not worker.settle(claim, Settle.DEAD_LETTER).lost
    assert doors.where(raw_id) == ["dead_letters"]


def test_full_memory_stops_neither_claims_nor_outcomes(own_doors: Doors) -> None:
    doors = own_doors
    doors.enqueue(*[doors.draft(number, key=f"{number}") for number in range(5)])
    doors.fill_memory()
    worker = doors.worker()
    claims = worker.take(4).claims
    assert len(claims) == 4
    answer = worker.take(4, settle=[settlement(*pair, delay=HOUR) for pair in zip(claims, Settle, strict=True)])
    assert not answer.lost
    assert len(answer.claims) == 2
    assert len(doors.schedule()) == len(doors.scores(doors.keys("dead_letters"))) == 1
    assert [claim.lease for claim in worker.again().claims] == [claim.lease for claim in answer.claims]


def test_full_memory_does_not_stop_an_exchange_of_nothing(own_doors: Doors) -> None:
    own_doors.fill_memory()
    assert own_doors.worker().take().claims == []


def test_lease_length_is_the_settings(make_doors: Callable[..., Doors]) -> None:
    doors = make_doors(LEASE=90)
    raw_id = doors.add()
    doors.worker().take()
    assert doors.scores(doors.keys("leases")) == {raw_id: START + 90 * SECOND}
