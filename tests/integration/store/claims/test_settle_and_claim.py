"""Settle and claim, claims: the best jobs are claimed first, under a lease, and the rest notify again."""

import random
from collections.abc import Callable

import pytest

from django_delayq.exceptions import BadBody, NewerBody
from django_delayq.job.outcome import Action
from tests.shard_apis import DAY, HOUR, LARGE_TEXT, MS, SECOND, START, ShardApis, ids, settlement

LEASE = 30 * SECOND


def suspect(apis: ShardApis) -> bytes:
    """Add a ready job whose last attempt crashed."""
    raw_id = apis.add()
    worker = apis.worker()
    (claim,) = [claim for claim in worker.take(64).claims if claim.raw_id == raw_id]
    worker.settle(claim, Action.RETRY, suspect=True)
    apis.promote()
    return raw_id


def test_claim_puts_a_job_under_a_lease_and_nowhere_else(apis: ShardApis) -> None:
    raw_id = apis.add()
    (claim,) = apis.worker().take().claims
    assert apis.where(raw_id) == ["leases"]
    assert apis.scores(apis.keys("leases")) == {raw_id: START + LEASE}
    assert (claim.raw_id, claim.claimed_us, claim.attempt, claim.queue) == (raw_id, START, 1, "default")
    assert claim.due_us == START // MS * MS


def test_a_claim_has_the_due_time_of_a_delayed_job(apis: ShardApis) -> None:
    apis.add(due=START + 7_654_321)
    apis.clock.advance(HOUR)
    apis.promote()
    assert apis.worker().take().claims[0].due_us == (START + 7_654_321) // MS * MS


def test_two_workers_never_hold_one_job(apis: ShardApis) -> None:
    drafts = [apis.draft(number) for number in range(50)]
    apis.enqueue(*drafts)
    first, second = apis.worker().take(30).claims, apis.worker().take(30).claims
    assert ids(first) + ids(second) == [draft.job.raw_id for draft in drafts]


def test_claims_come_in_the_order_of_priority_then_of_creation(apis: ShardApis) -> None:
    drafts = [apis.draft(number, priority=number % 201 - 100) for number in range(402)]
    apis.enqueue(*random.Random(3).sample(drafts, len(drafts)))
    worker = apis.worker()
    taken = [raw_id for _ in range(7) for raw_id in ids(worker.take(64).claims)]
    assert taken == [draft.job.raw_id for draft in sorted(drafts, key=lambda draft: -draft.job.priority)]


def test_best_rank_of_all_queues_comes_first(apis: ShardApis) -> None:
    low = apis.add(queue="a", priority=1)
    high = apis.add(queue="b", priority=2)
    apis.clock.advance(MS)
    later = apis.add(queue="c", priority=2)
    worker = apis.worker()
    assert ids(worker.take(2, "a", "b", "c").claims) == [high, later]
    assert ids(worker.take(2, "a", "b", "c").claims) == [low]


def test_named_queues_are_emptied_strictly_in_their_order(apis: ShardApis) -> None:
    first = [apis.add(queue="a", priority=-100) for _ in range(3)]
    second = [apis.add(queue="b", priority=100) for _ in range(3)]
    worker = apis.worker()
    assert ids(worker.take(2, "a", "b", strict=True).claims) == first[:2]
    answer = worker.take(3, "a", "b", strict=True)
    assert ids(answer.claims) == [first[2], *second[:2]]
    assert [claim.queue for claim in answer.claims] == ["a", "b", "b"]
    assert answer.has_more


def test_queues_that_are_not_served_are_left_alone(apis: ShardApis) -> None:
    raw_id = apis.add(queue="other")
    assert apis.worker().take(5).claims == []
    assert apis.where(raw_id) == ["ready:other"]


def test_an_exchange_that_wants_nothing_claims_nothing(apis: ShardApis) -> None:
    raw_id = apis.add()
    assert apis.worker().take(0).claims == []
    assert apis.where(raw_id) == ["ready:default"]


def test_batch_ends_before_a_large_body_which_then_comes_alone(apis: ShardApis) -> None:
    small, large, last = apis.add(), apis.add(LARGE_TEXT), apis.add()
    worker = apis.worker()
    answers = [worker.take(8) for _ in range(3)]
    assert [ids(answer.claims) for answer in answers] == [[small], [large], [last]]
    assert [answer.has_more for answer in answers] == [True, True, False]


def test_batch_ends_before_a_crashed_job_which_then_comes_alone(apis: ShardApis) -> None:
    one = suspect(apis)
    apis.clock.advance(SECOND)
    two = apis.add(priority=1)
    three = apis.add()
    worker = apis.worker()
    answers = [worker.take(8) for _ in range(3)]
    assert [ids(answer.claims) for answer in answers] == [[two], [one], [three]]
    assert answers[1].claims[0].attempts.crash_suspected


def test_a_job_that_failed_without_a_crash_is_not_suspected(apis: ShardApis) -> None:
    apis.add()
    worker = apis.worker()
    worker.settle(worker.take().claims[0], Action.RETRY)
    apis.promote()
    apis.add()
    assert len(worker.take(8).claims) == 2


def test_jobs_left_by_a_batch_that_ended_early_notify_again(apis: ShardApis) -> None:
    apis.add()
    apis.add(LARGE_TEXT)
    apis.notifications(apis.keys.notify("default"))
    apis.worker().take(8)
    assert apis.notifications(apis.keys.notify("default")) == [1]


@pytest.mark.parametrize("strict", [False, True])
def test_jobs_left_in_any_served_queue_notify_again(apis: ShardApis, strict: bool) -> None:
    notify_keys = [apis.keys.notify(queue) for queue in "abc"]
    apis.enqueue(*[apis.draft(queue=queue) for queue in "aabc"])
    apis.notifications(*notify_keys)
    worker = apis.worker()
    assert worker.take(2, "a", "b", "c", strict=strict).has_more
    assert apis.notifications(*notify_keys)[1:] == [1, 1]
    assert not worker.take(2, "a", "b", "c", strict=strict).has_more
    assert apis.notifications(*notify_keys) == [0, 0, 0]


def test_jobs_of_a_queue_that_is_not_served_do_not_notify(apis: ShardApis) -> None:
    apis.add(queue="a")
    apis.add(queue="b")
    apis.notifications(apis.keys.notify("b"))
    apis.worker().take(1, "a")
    assert apis.notifications(apis.keys.notify("b")) == [0]


def test_the_reply_shows_whether_anybody_promotes(apis: ShardApis) -> None:
    worker = apis.worker()
    assert worker.take().dispatcher_overdue
    apis.add(delay=2 * SECOND)
    apis.promote()
    assert worker.take().overdue_in_us == 3 * SECOND + 1
    # One second after the time that promote announced.
    apis.clock.advance(3 * SECOND)
    assert not worker.take().dispatcher_overdue
    apis.clock.advance(1)
    assert worker.take().dispatcher_overdue


def test_the_version_changes_when_a_queue_appears_and_after_a_flush(apis: ShardApis) -> None:
    versions = [apis.worker().take(1, "a").queues_version]
    for queue in ("a", "b"):
        apis.add(queue=queue)
        versions.append(apis.worker().take(1, "a").queues_version)
    apis.client.flushdb()
    apis.clock.advance(SECOND)
    apis.add(queue="a")
    versions.append(apis.worker().take(1, "a").queues_version)
    assert versions[0] == b"" and len(set(versions)) == 4
    apis.add(queue="a")
    apis.add(queue="later", delay=HOUR)
    assert apis.worker().take(1, "a").queues_version == versions[-1]


def test_a_worker_is_seen_at_each_exchange_and_named_once(apis: ShardApis) -> None:
    worker = apis.worker()
    worker.take(description="host/7")
    apis.clock.advance(SECOND)
    worker.take()
    assert apis.client.zscore(apis.keys("workers"), worker.code) == START + SECOND
    assert apis.client.hget(apis.keys("worker_names"), worker.code) == b"host/7"


@pytest.mark.parametrize(
    ("body", "fault"), [(None, BadBody), (b"", BadBody), (b"\x01garbage", BadBody), (b"\xff", NewerBody)]
)
def test_claim_of_a_damaged_body_has_the_fault(apis: ShardApis, body: bytes | None, fault: type[Exception]) -> None:
    raw_id = apis.add()
    bodies = apis.keys("jobs")
    if body is None:
        apis.client.hdel(bodies, raw_id)
    else:
        whole = apis.client.hget(bodies, raw_id)
        apis.client.hset(bodies, raw_id, body + whole[1:] if body == b"\xff" else body)
    worker = apis.worker()
    (claim,) = worker.take().claims
    assert claim.job is None
    assert type(claim.fault) is fault
    assert not worker.settle(claim, Action.DEAD_LETTER).lost
    assert apis.where(raw_id) == ["dead_letters"]


def test_full_memory_stops_neither_claims_nor_outcomes(own_apis: ShardApis) -> None:
    apis = own_apis
    apis.enqueue(*[apis.draft(number, key=f"{number}") for number in range(6)])
    apis.fill_memory()
    worker = apis.worker()
    claims = worker.take(5).claims
    assert len(claims) == 5
    answer = worker.take(4, settle=[settlement(*pair, delay=HOUR) for pair in zip(claims, Action, strict=True)])
    assert not answer.lost
    assert len(answer.claims) == 2
    assert len(apis.scheduled()) == len(apis.scores(apis.keys("dead_letters"))) == 1
    assert [claim.lease for claim in worker.again().claims] == [claim.lease for claim in answer.claims]


def test_full_memory_does_not_stop_an_exchange_of_nothing(own_apis: ShardApis) -> None:
    own_apis.fill_memory()
    assert own_apis.worker().take().claims == []


def test_lease_length_is_the_settings(make_apis: Callable[..., ShardApis]) -> None:
    apis = make_apis(LEASE=90)
    raw_id = apis.add()
    apis.worker().take()
    assert apis.scores(apis.keys("leases")) == {raw_id: START + 90 * SECOND}


@pytest.mark.parametrize("back", [10 * SECOND, 600 * SECOND, HOUR - 100 * SECOND, 300 * DAY])
def test_after_a_clock_set_back_a_missing_dispatcher_is_noticed_within_seconds(apis: ShardApis, back: int) -> None:
    apis.promote()
    worker = apis.worker()
    apis.clock.advance(-back)
    assert worker.take().dispatcher_overdue


@pytest.mark.parametrize("back", [0, 1, SECOND])
def test_a_clock_set_back_a_little_does_not_make_the_dispatcher_overdue_at_once(apis: ShardApis, back: int) -> None:
    apis.promote()
    worker = apis.worker()
    apis.clock.advance(-back)
    assert not worker.take().dispatcher_overdue
    # One sweep, and the second after which the next promotion is overdue.
    apis.clock.advance(back + 6 * SECOND + 1)
    assert worker.take().dispatcher_overdue
