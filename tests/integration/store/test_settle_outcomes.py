"""Exchange, outcomes: each is fenced by its lease, and each puts the job where it belongs."""

import pytest

from django_delayq.job.outcome import Action
from tests.shard_apis import DAY, HOUR, MS, SECOND, START, Doors, settlement

EVERY_OUTCOME = pytest.mark.parametrize("outcome", list(Action))
LEASE = 30 * SECOND


def test_acknowledge_leaves_nothing_of_a_job(doors: Doors) -> None:
    raw_id = doors.add(key="k")
    worker = doors.worker()
    assert not worker.settle(worker.take().claims[0], Action.ACKNOWLEDGE).lost
    assert doors.traces(raw_id) == []
    assert doors.where(raw_id) == []


def test_acknowledge_after_retries_leaves_nothing_of_a_job(doors: Doors) -> None:
    raw_id = doors.add()
    worker = doors.worker()
    for _ in range(2):
        worker.settle(worker.take().claims[0], Action.RETRY)
        doors.promote()
    worker.settle(worker.take().claims[0], Action.ACKNOWLEDGE)
    assert doors.traces(raw_id) == []


@pytest.mark.parametrize("delay", [1, SECOND, DAY, 365 * DAY, 3_650 * DAY])
def test_retry_comes_back_at_the_exact_microsecond_with_its_attempt_counted(doors: Doors, delay: int) -> None:
    raw_id = doors.add()
    worker = doors.worker()
    doors.clock.advance(11)
    worker.settle(worker.take().claims[0], Action.RETRY, delay=delay)
    assert doors.schedule() == {raw_id: START + 11 + delay}
    doors.clock.advance(delay)
    doors.promote()
    (claim,) = worker.take().claims
    assert (claim.attempt, claim.attempts.last_error) == (2, "as asked")


def test_retry_rings_the_alarm_when_it_is_the_next_thing_to_do(doors: Doors) -> None:
    doors.add()
    worker = doors.worker()
    claim = worker.take().claims[0]
    doors.promote()
    doors.rings(doors.keys("notify_dispatcher"))
    worker.settle(claim, Action.RETRY, delay=100 * MS)
    assert doors.rings(doors.keys("notify_dispatcher")) == [1]


def test_retry_far_ahead_wakes_nobody(doors: Doors) -> None:
    doors.add()
    worker = doors.worker()
    claim = worker.take().claims[0]
    doors.promote()
    doors.rings(doors.keys("notify_dispatcher"))
    worker.settle(claim, Action.RETRY, delay=HOUR)
    assert doors.rings(doors.keys("notify_dispatcher")) == [0]


def test_dead_letter_keeps_body_and_history_and_lets_the_key_go(doors: Doors) -> None:
    raw_id = doors.add("argument", key="k")
    worker = doors.worker()
    doors.clock.advance(5)
    worker.settle(worker.take().claims[0], Action.DEAD_LETTER, error="the end")
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
    doors.clock.advance(HOUR)
    doors.rings(doors.keys.notify("default"))
    worker.take(0, settle=[settlement(claim, Action.RELEASE) for claim in claims])
    assert doors.ready() == ranks
    assert doors.rings(doors.keys.notify("default")) == [1]
    assert [claim.attempt for claim in worker.take(3).claims] == [1, 1, 1]


def test_job_released_and_taken_in_one_exchange_has_a_new_lease(doors: Doors) -> None:
    doors.add()
    worker = doors.worker()
    (old,) = worker.take().claims
    (new,) = worker.take(1, settle=[settlement(old, Action.RELEASE)]).claims
    assert (new.raw_id, new.attempt) == (old.raw_id, 1)
    assert new.lease != old.lease
    assert worker.settle(old, Action.ACKNOWLEDGE).lost == {old.lease}
    assert not worker.settle(new, Action.ACKNOWLEDGE).lost


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
            settlement(done, Action.ACKNOWLEDGE),
            settlement(retried, Action.RETRY, delay=HOUR),
            settlement(dead, Action.DEAD_LETTER),
            settlement(released, Action.RELEASE),
        ],
    )
    assert not answer.lost
    assert len(answer.claims) == 1
    assert doors.where(done.raw_id) == []
    assert doors.where(retried.raw_id) == [f"scheduled:{retried.queue}"]
    assert doors.where(dead.raw_id) == ["dead_letters"]
    places = [doors.where(released.raw_id), doors.where(left)]
    assert sorted(place[0].split(":")[0] for place in places) == ["leases", "ready"]


@EVERY_OUTCOME
def test_worker_whose_lease_was_given_to_another_settles_nothing(doors: Doors, outcome: Action) -> None:
    raw_id = doors.add()
    late, next_one = doors.worker(), doors.worker()
    (old,) = late.take().claims
    doors.lapse()
    (new,) = next_one.take().claims
    answer = late.settle(old, outcome)
    assert answer.lost == {old.lease}
    assert doors.where(raw_id) == ["leases"]
    assert doors.scores(doors.keys("leases")) == {raw_id: doors.clock.now_us + LEASE}
    assert not next_one.settle(new, Action.ACKNOWLEDGE).lost


@EVERY_OUTCOME
def test_outcome_handed_in_twice_counts_once(doors: Doors, outcome: Action) -> None:
    doors.add()
    worker = doors.worker()
    (claim,) = worker.take().claims
    assert not worker.settle(claim, outcome).lost
    places = doors.where(claim.raw_id)
    assert worker.settle(claim, Action.DEAD_LETTER).lost == {claim.lease}
    assert doors.where(claim.raw_id) == places


@EVERY_OUTCOME
def test_lease_past_its_end_still_settles_while_nobody_took_it_back(doors: Doors, outcome: Action) -> None:
    doors.add()
    worker = doors.worker()
    (claim,) = worker.take().claims
    doors.clock.advance(2 * LEASE)
    assert not worker.settle(claim, outcome).lost


def test_lost_outcome_does_not_touch_those_beside_it(doors: Doors) -> None:
    doors.add()
    worker = doors.worker()
    (lost,) = worker.take().claims
    doors.lapse()
    other = doors.worker().take().claims
    doors.add()
    (kept,) = worker.take().claims
    answer = worker.take(0, settle=[settlement(claim, Action.ACKNOWLEDGE) for claim in (lost, kept)])
    assert answer.lost == {lost.lease}
    assert doors.where(kept.raw_id) == []
    assert doors.where(other[0].raw_id) == ["leases"]
