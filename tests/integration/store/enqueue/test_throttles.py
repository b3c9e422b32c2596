"""Throttled jobs: when a window opens, for how long, what ends it, and that nothing of it is left."""

from datetime import timedelta
from typing import Any

import pytest

from django_delayq.clock import LATEST_US
from django_delayq.exceptions import ScriptFault, StoreRejected
from django_delayq.job.job import State
from django_delayq.job.outcome import Action
from django_delayq.job.unsent import Throttle, UnsentJob
from django_delayq.store.digests import key_digest
from tests.shard_apis import HOUR, SECOND, START, ShardApis

WINDOW = 10
LATEST = timedelta(microseconds=LATEST_US)
DIGEST = key_digest("tests.sample_app.tasks.noop", "k", None)


def throttled(
    apis: ShardApis, *args: Any, window: float | timedelta = WINDOW, key: str = "k", **options: Any
) -> UnsentJob:
    return apis.draft(*args, key=key, unique=Throttle(window), **options)


def first_call(apis: ShardApis, **options: Any) -> bytes:
    """Open a window and return the id of its job."""
    draft = throttled(apis, **options)
    assert not apis.enqueue(draft).held
    return draft.job.raw_id


def windows(apis: ShardApis) -> dict[bytes, tuple[bytes, int]]:
    """Return the first job and the end of each window."""
    firsts = apis.client.hgetall(apis.keys("throttles"))
    ends = dict(apis.client.zrange(apis.keys("throttle_ends"), 0, -1, withscores=True))
    assert firsts.keys() == ends.keys()
    return {digest: (first, int(ends[digest])) for digest, first in firsts.items()}


def test_a_window_is_exact_to_the_microsecond(apis: ShardApis) -> None:
    first = first_call(apis)
    assert windows(apis) == {DIGEST: (first, START + WINDOW * SECOND)}
    apis.clock.advance(WINDOW * SECOND - 1)
    assert apis.enqueue(throttled(apis)).held == {0: first}
    apis.clock.advance(1)
    second = first_call(apis)
    assert windows(apis) == {DIGEST: (second, START + 2 * WINDOW * SECOND)}


def test_a_throttled_call_changes_nothing(apis: ShardApis) -> None:
    first = first_call(apis, delay=HOUR)
    apis.clock.advance(SECOND)
    before = {key: apis.client.dump(key) for key in apis.client.keys("*")}
    assert apis.enqueue(throttled(apis, "other", priority=5, queue="mail")).held == {0: first}
    assert {key: apis.client.dump(key) for key in apis.client.keys("*")} == before


def test_a_throttled_job_holds_no_unique_key(apis: ShardApis) -> None:
    first_call(apis)
    assert not apis.client.exists(apis.keys("unique_keys"))
    assert apis.enqueue(apis.draft(key="k"), throttled(apis)).held.keys() == {1}


@pytest.mark.parametrize("by", ["the job", "another job"])
def test_a_window_ends_when_its_first_job_is_cancelled(apis: ShardApis, by: str) -> None:
    first = first_call(apis)
    apis.clock.advance(WINDOW * SECOND)
    second = first_call(apis)
    assert apis.operations.cancel(second if by == "the job" else first)
    assert len(apis.enqueue(throttled(apis)).held) == (by == "another job")


def test_a_cancel_of_a_job_that_waits_again_ends_the_window(apis: ShardApis) -> None:
    first = first_call(apis)
    worker = apis.worker()
    worker.settle(worker.take(1).claims[0], Action.RETRY, delay=HOUR)
    assert apis.enqueue(throttled(apis)).held == {0: first}
    assert apis.operations.cancel(first)
    assert windows(apis) == {}


@pytest.mark.parametrize("ending", [Action.ACKNOWLEDGE, Action.CANCEL, Action.DEAD_LETTER])
def test_no_other_end_of_the_job_ends_the_window(apis: ShardApis, ending: Action) -> None:
    first = first_call(apis)
    worker = apis.worker()
    [claim] = worker.take(1).claims
    assert not apis.operations.cancel(first)
    if ending is Action.CANCEL:
        assert apis.operations.stop(first, grace_us=0)
    assert not worker.settle(claim, ending).lost
    assert apis.enqueue(throttled(apis)).held == {0: first}
    letter = apis.inspection.dead_letter(first)
    if letter is not None:
        assert apis.operations.requeue(first, died_us=letter.moment_us)
        assert apis.enqueue(throttled(apis)).held == {0: first}
        apis.kill(first)
        assert apis.operations.discard(first, died_us=apis.clock.now_us)
    assert windows(apis).keys() == {DIGEST}
    assert apis.traces(first) == []


def test_a_requeued_job_is_cancelled_with_its_window(apis: ShardApis) -> None:
    first = first_call(apis)
    apis.kill(first)
    assert apis.operations.requeue(first, died_us=apis.clock.now_us)
    assert apis.operations.move(first, "moved")
    assert apis.operations.reschedule(first, delay_us=HOUR)
    assert apis.operations.cancel(first)
    assert windows(apis) == {}


@pytest.mark.parametrize("state", ["waits", "runs", "is dead", "is gone"])
def test_a_repeated_send_is_not_throttled_by_itself(apis: ShardApis, state: str) -> None:
    draft = throttled(apis)
    apis.enqueue(draft)
    worker = apis.worker()
    if state != "waits":
        [claim] = worker.take(1).claims
        if state != "runs":
            worker.settle(claim, Action.DEAD_LETTER if state == "is dead" else Action.ACKNOWLEDGE)
    apis.clock.advance(SECOND)
    assert apis.enqueue(draft, draft, throttled(apis)).held == {2: draft.job.raw_id}
    assert worker.take(5).claims == [] if state != "waits" else len(worker.take(5).claims) == 1
    assert windows(apis) == {DIGEST: (draft.job.raw_id, START + WINDOW * SECOND)}


@pytest.mark.parametrize("trimmed", [True, False])
def test_a_send_repeated_after_its_window_finds_itself(apis: ShardApis, trimmed: bool) -> None:
    first, second = throttled(apis, delay=HOUR), throttled(apis)
    apis.enqueue(first)
    apis.clock.advance(WINDOW * SECOND)
    if trimmed:
        apis.promote()
    assert apis.enqueue(first, second).held == {}
    assert windows(apis)[DIGEST][0] == second.job.raw_id
    assert apis.enqueue(first, second, throttled(apis)).held == {2: second.job.raw_id}
    assert apis.client.hlen(apis.keys("jobs")) == 2


def test_a_send_that_arrives_after_its_cancel_opens_no_window(apis: ShardApis) -> None:
    late = throttled(apis)
    apis.operations.cancel(late.job.raw_id, may_arrive=True)
    assert apis.enqueue(late).held == {}
    assert windows(apis) == {}
    opened = throttled(apis)
    apis.enqueue(opened)
    apis.operations.cancel(opened.job.raw_id, may_arrive=True)
    assert apis.enqueue(opened).held == {}
    assert windows(apis) == {}


def test_a_full_redis_opens_no_window(own_apis: ShardApis) -> None:
    own_apis.fill_memory()
    with pytest.raises(StoreRejected) as error:
        own_apis.enqueue(throttled(own_apis), throttled(own_apis, key="l"))
    assert not error.value.maybe_accepted
    assert own_apis.client.dbsize() == 0
    own_apis.free_memory()
    first = first_call(own_apis)
    own_apis.fill_memory()
    assert own_apis.enqueue(throttled(own_apis)).held == {0: first}, "a throttled call needs no memory"
    assert own_apis.operations.cancel(first)
    assert windows(own_apis) == {}


@pytest.mark.parametrize("noun", ["throttles", "throttle_ends"])
def test_a_key_of_another_type_stores_nothing(apis: ShardApis, noun: str) -> None:
    apis.client.set(apis.keys(noun), "x")
    with pytest.raises(ScriptFault, match="WRONGTYPE"):
        apis.enqueue(apis.draft(), throttled(apis))
    assert apis.client.dbsize() == 1
    waiting = apis.add(key="k")
    for change in (apis.operations.cancel, lambda _: apis.promote()):
        with pytest.raises(ScriptFault, match="WRONGTYPE"):
            change(waiting)
    assert apis.where(waiting) == ["ready:default"]


def test_a_clock_that_was_set_back_stops_no_call_for_more_than_two_windows(apis: ShardApis) -> None:
    first = first_call(apis)
    apis.clock.now_us -= WINDOW * SECOND
    assert apis.enqueue(throttled(apis)).held == {0: first}, "a failover must not open a second window"
    apis.clock.now_us -= 1
    second = first_call(apis)
    assert apis.enqueue(throttled(apis)).held == {0: second}


def test_a_shorter_window_takes_effect_at_once(apis: ShardApis) -> None:
    first = first_call(apis, window=3_600)
    assert apis.enqueue(throttled(apis, window=3_600)).held == {0: first}
    apis.clock.advance(3_580 * SECOND)
    assert apis.enqueue(throttled(apis)).held == {0: first}, "no more than two windows are left"
    apis.clock.advance(20 * SECOND)
    first_call(apis, window=3_600)
    first_call(apis)


def test_a_window_ends_before_scores_lose_digits(apis: ShardApis) -> None:
    first = first_call(apis, window=LATEST)
    assert windows(apis) == {DIGEST: (first, LATEST_US)}
    assert apis.enqueue(throttled(apis, window=LATEST)).held == {0: first}


def test_a_flush_forgets_the_windows(apis: ShardApis) -> None:
    first_call(apis)
    apis.client.flushall()
    first_call(apis)


@pytest.mark.parametrize("half", ["throttles", "throttle_ends"])
def test_half_a_window_is_none(apis: ShardApis, half: str) -> None:
    first_call(apis)
    apis.client.delete(apis.keys(half))
    second = first_call(apis)
    assert windows(apis)[DIGEST][0] == second


def test_promotions_remove_windows_that_are_over_in_batches(apis: ShardApis) -> None:
    for batch in range(3):
        apis.enqueue(*(throttled(apis, key=f"{batch} {number}") for number in range(250)))
    first_call(apis, window=WINDOW + 1)
    apis.clock.advance(WINDOW * SECOND - 1)
    assert apis.promote().sleep_us > 0
    assert len(windows(apis)) == 751
    apis.clock.advance(1)
    assert apis.promote().sleep_us == 0, "more is left"
    assert len(windows(apis)) == 251
    assert apis.promote().sleep_us > 0
    assert windows(apis).keys() == {DIGEST}
    apis.clock.advance(SECOND)
    apis.promote()
    assert not apis.client.exists(apis.keys("throttles"), apis.keys("throttle_ends"))


def test_full_memory_does_not_keep_windows(own_apis: ShardApis) -> None:
    first_call(own_apis)
    own_apis.clock.advance(WINDOW * SECOND)
    own_apis.fill_memory()
    own_apis.promote()
    assert windows(own_apis) == {}


def test_a_job_of_a_tenant_is_throttled_and_counted_once(apis: ShardApis) -> None:
    first = first_call(apis, tenant="acme")
    assert apis.enqueue(throttled(apis, tenant="acme")).held == {0: first}
    assert apis.operations.cancel(first)
    assert windows(apis) == {}
    assert not apis.client.exists(apis.keys("tenant_jobs"), apis.keys("job_extras"))


def test_the_job_of_a_window_is_found_by_its_key(apis: ShardApis) -> None:
    first = first_call(apis, ttl=HOUR)
    assert apis.inspection.holder(DIGEST) == first
    worker = apis.worker()
    worker.settle(worker.take(1).claims[0], Action.ACKNOWLEDGE, value="1")
    assert apis.inspection.find(first).state is State.DONE
    assert apis.inspection.holder(DIGEST) == first
    apis.clock.advance(WINDOW * SECOND)
    assert apis.inspection.holder(DIGEST) is None
