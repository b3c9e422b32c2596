"""Settle and claim, outcomes: each is applied only while its lease stands, and puts the job into its place."""

import pytest

from django_delayq.job.outcome import Action
from tests.shard_apis import DAY, HOUR, MS, SECOND, START, ShardApis, settlement

EVERY_OUTCOME = pytest.mark.parametrize("outcome", list(Action))
LEASE = 30 * SECOND


def test_acknowledge_leaves_nothing_of_a_job(apis: ShardApis) -> None:
    raw_id = apis.add(key="k")
    worker = apis.worker()
    assert not worker.settle(worker.take().claims[0], Action.ACKNOWLEDGE).lost
    assert apis.traces(raw_id) == []
    assert apis.where(raw_id) == []


def test_acknowledge_after_retries_leaves_nothing_of_a_job(apis: ShardApis) -> None:
    raw_id = apis.add()
    worker = apis.worker()
    for _ in range(2):
        worker.settle(worker.take().claims[0], Action.RETRY)
        apis.promote()
    worker.settle(worker.take().claims[0], Action.ACKNOWLEDGE)
    assert apis.traces(raw_id) == []


@pytest.mark.parametrize("delay", [1, SECOND, DAY, 365 * DAY, 3_650 * DAY])
def test_a_retry_is_due_at_the_exact_microsecond_with_its_attempt_counted(apis: ShardApis, delay: int) -> None:
    raw_id = apis.add()
    worker = apis.worker()
    apis.clock.advance(11)
    worker.settle(worker.take().claims[0], Action.RETRY, delay=delay)
    assert apis.scheduled() == {raw_id: START + 11 + delay}
    apis.clock.advance(delay)
    apis.promote()
    (claim,) = worker.take().claims
    assert (claim.attempt, claim.attempts.last_error) == (2, "as asked")


def test_a_retry_notifies_the_dispatcher_if_it_is_the_next_thing_to_do(apis: ShardApis) -> None:
    apis.add()
    worker = apis.worker()
    claim = worker.take().claims[0]
    apis.promote()
    apis.notifications(apis.keys("notify_dispatcher"))
    worker.settle(claim, Action.RETRY, delay=100 * MS)
    assert apis.notifications(apis.keys("notify_dispatcher")) == [1]


def test_a_retry_far_ahead_notifies_nobody(apis: ShardApis) -> None:
    apis.add()
    worker = apis.worker()
    claim = worker.take().claims[0]
    apis.promote()
    apis.notifications(apis.keys("notify_dispatcher"))
    worker.settle(claim, Action.RETRY, delay=HOUR)
    assert apis.notifications(apis.keys("notify_dispatcher")) == [0]


def test_dead_letter_keeps_body_and_history_and_releases_the_key(apis: ShardApis) -> None:
    raw_id = apis.add("argument", key="k")
    worker = apis.worker()
    apis.clock.advance(5)
    worker.settle(worker.take().claims[0], Action.DEAD_LETTER, error="the end")
    assert apis.traces(raw_id) == ["dead_bodies", "dead_letters", "groups_of_dead"]
    letter = apis.inspection.dead_letter(raw_id)
    assert letter is not None
    assert letter.job is not None
    assert (letter.moment_us, letter.job.args) == (START + 5, ["argument"])
    assert (letter.attempts.ended, letter.attempts.last_error) == (1, "the end")


def test_released_job_is_back_in_its_old_place_and_its_attempt_is_uncounted(apis: ShardApis) -> None:
    drafts = [apis.draft(number) for number in range(3)]
    apis.enqueue(*drafts)
    ranks = apis.ready()
    worker = apis.worker()
    claims = worker.take(2).claims
    apis.clock.advance(HOUR)
    apis.notifications(apis.keys.notify("default"))
    worker.take(0, settle=[settlement(claim, Action.RELEASE) for claim in claims])
    assert apis.ready() == ranks
    assert apis.notifications(apis.keys.notify("default")) == [1]
    assert [claim.attempt for claim in worker.take(3).claims] == [1, 1, 1]


def test_job_released_and_claimed_in_one_exchange_has_a_new_lease(apis: ShardApis) -> None:
    apis.add()
    worker = apis.worker()
    (old,) = worker.take().claims
    (new,) = worker.take(1, settle=[settlement(old, Action.RELEASE)]).claims
    assert (new.raw_id, new.attempt) == (old.raw_id, 1)
    assert new.lease != old.lease
    assert worker.settle(old, Action.ACKNOWLEDGE).lost == {old.lease}
    assert not worker.settle(new, Action.ACKNOWLEDGE).lost


def test_one_exchange_applies_every_outcome_and_claims_the_next_job(apis: ShardApis) -> None:
    made = [apis.add(queue=queue) for queue in ("a", "b", "a", "b", "a")]
    worker = apis.worker()
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
    assert apis.where(done.raw_id) == []
    assert apis.where(retried.raw_id) == [f"scheduled:{retried.queue}"]
    assert apis.where(dead.raw_id) == ["dead_letters"]
    places = [apis.where(released.raw_id), apis.where(left)]
    assert sorted(place[0].split(":")[0] for place in places) == ["leases", "ready"]


@EVERY_OUTCOME
def test_a_worker_whose_job_was_claimed_by_another_settles_nothing(apis: ShardApis, outcome: Action) -> None:
    raw_id = apis.add()
    late, next_one = apis.worker(), apis.worker()
    (old,) = late.take().claims
    apis.expire_leases()
    (new,) = next_one.take().claims
    answer = late.settle(old, outcome)
    assert answer.lost == {old.lease}
    assert apis.where(raw_id) == ["leases"]
    assert apis.scores(apis.keys("leases")) == {raw_id: apis.clock.now_us + LEASE}
    assert not next_one.settle(new, Action.ACKNOWLEDGE).lost


@EVERY_OUTCOME
def test_an_outcome_sent_twice_counts_once(apis: ShardApis, outcome: Action) -> None:
    apis.add()
    worker = apis.worker()
    (claim,) = worker.take().claims
    assert not worker.settle(claim, outcome).lost
    places = apis.where(claim.raw_id)
    assert worker.settle(claim, Action.DEAD_LETTER).lost == {claim.lease}
    assert apis.where(claim.raw_id) == places


@EVERY_OUTCOME
def test_an_expired_lease_still_settles_until_it_is_reclaimed(apis: ShardApis, outcome: Action) -> None:
    apis.add()
    worker = apis.worker()
    (claim,) = worker.take().claims
    apis.clock.advance(2 * LEASE)
    assert not worker.settle(claim, outcome).lost


def test_a_lost_outcome_does_not_affect_the_others(apis: ShardApis) -> None:
    apis.add()
    worker = apis.worker()
    (lost,) = worker.take().claims
    apis.expire_leases()
    other = apis.worker().take().claims
    apis.add()
    (kept,) = worker.take().claims
    answer = worker.take(0, settle=[settlement(claim, Action.ACKNOWLEDGE) for claim in (lost, kept)])
    assert answer.lost == {lost.lease}
    assert apis.where(kept.raw_id) == []
    assert apis.where(other[0].raw_id) == ["leases"]
