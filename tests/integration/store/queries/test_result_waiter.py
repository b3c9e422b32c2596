"""Kept results: the script that ends the job stores it; it can be found and waited for until it expires."""

import threading

import pytest

from django_delayq.job.job import State
from django_delayq.job.outcome import Action
from django_delayq.job.result import Result
from django_delayq.store.queries.result_waiter import wait_for_result
from tests.shard_apis import HOUR, SECOND, ShardApis, settlement


def finish(apis: ShardApis, raw_id: bytes, *, value: str = "[3]", ttl_ms: int = 60_000) -> None:
    """Claim a ready job and acknowledge it with a result."""
    worker = apis.worker()
    [claim] = worker.take(1).claims
    assert claim.raw_id == raw_id
    assert not worker.settle(claim, Action.ACKNOWLEDGE, value=value, ttl_ms=ttl_ms).lost


def test_a_job_that_is_done_is_found_with_its_result_body_and_attempts(apis: ShardApis) -> None:
    raw_id = apis.add("argument", ttl=HOUR)
    worker = apis.worker()
    [claim] = worker.take(1).claims
    worker.settle(claim, Action.RETRY, error="at first")
    apis.promote()
    finish(apis, raw_id, value='{"a": [1.0, null]}')
    found = apis.inspection.find(raw_id)
    assert (found.state, found.moment_us) == (State.DONE, 2)
    assert found.result == Result(state=State.DONE, worker="w", started_us=1, ended_us=2, value={"a": [1.0, None]})
    assert found.job is not None
    assert found.job.args == ["argument"]
    assert [entry["error"] for entry in found.attempts.history] == ["at first"]
    assert apis.traces(raw_id) == []


def test_a_result_expires_and_nothing_else_does(apis: ShardApis) -> None:
    raw_id = apis.add(ttl=HOUR)
    finish(apis, raw_id, ttl_ms=HOUR // 1_000)
    key = apis.keys.results(raw_id)
    assert 0 < apis.client.pttl(key) <= HOUR // 1_000
    apis.client.pexpire(key, 0)
    assert apis.inspection.find(raw_id).state is State.GONE


def test_a_job_without_a_result_leaves_no_key(apis: ShardApis) -> None:
    raw_id, worker = apis.add(), apis.worker()
    [claim] = worker.take(1).claims
    worker.settle(claim, Action.ACKNOWLEDGE)
    assert not apis.client.exists(apis.keys.results(raw_id))
    assert apis.inspection.find(raw_id).state is State.GONE


def test_a_late_worker_keeps_no_result(apis: ShardApis) -> None:
    raw_id, late = apis.add(ttl=HOUR), apis.worker()
    [claim] = late.take(1).claims
    apis.expire_leases()
    assert late.settle(claim, Action.ACKNOWLEDGE, value="1").lost == {claim.lease}
    assert apis.inspection.find(raw_id).state is State.READY
    finish(apis, raw_id, value="2")
    found = apis.inspection.find(raw_id).result
    assert found is not None
    assert found.value == 2


def test_results_and_other_outcomes_are_settled_by_one_exchange(apis: ShardApis) -> None:
    ids = [apis.add(queue=queue, ttl=HOUR, key=f"{number}") for number, queue in enumerate("aabba")]
    worker = apis.worker()
    claims = {claim.raw_id: claim for claim in worker.take(5, "a", "b").claims}
    hows = [Action.ACKNOWLEDGE, Action.RETRY, Action.RELEASE, Action.DEAD_LETTER, Action.ACKNOWLEDGE]
    ends = [
        settlement(claims[raw_id], how, value=f"{number}", delay=SECOND)
        for number, (raw_id, how) in enumerate(zip(ids, hows, strict=True))
    ]
    assert not worker.take(0, "a", "b", settle=ends).lost
    found = [apis.inspection.find(raw_id) for raw_id in ids]
    assert [each.state for each in found] == [State.DONE, State.SCHEDULED, State.READY, State.DEAD, State.DONE]
    assert [each.result.value for each in found if each.result] == [0, 4]
    assert found[1].job and found[1].job.queue == "a"
    # Repeated with the same bytes, it changes nothing.
    worker.again()
    assert [apis.inspection.find(raw_id).state for raw_id in ids] == [each.state for each in found]
    assert apis.client.hlen(apis.keys("unique_keys")) == 2


@pytest.mark.parametrize("delay", [None, HOUR])
def test_the_result_of_a_cancelled_job_is_that_it_was_cancelled(apis: ShardApis, delay: int | None) -> None:
    raw_id = apis.add("argument", delay=delay, ttl=5 * SECOND, key="k")
    assert apis.operations.cancel(raw_id)
    found = apis.inspection.find(raw_id)
    assert (found.state, found.job and found.job.args) == (State.CANCELLED, ["argument"])
    assert found.result and found.result.started_us is None
    assert apis.client.pttl(apis.keys.results(raw_id)) <= 5_000
    assert apis.traces(raw_id) == []
    assert not apis.operations.cancel(raw_id)


def test_a_manually_edited_result_stops_neither_a_worker_nor_a_lookup(apis: ShardApis) -> None:
    raw_id = apis.add(ttl=HOUR)
    key = apis.keys.results(raw_id)
    apis.client.set(key, "by hand")
    assert apis.inspection.find(raw_id).state is State.READY
    finish(apis, raw_id)
    assert apis.inspection.find(raw_id).state is State.DONE
    for junk in (b"", b"\xff" * 30, b"\0\0\0\0\0\0\0\2{}", b"\0\0\0\0\0\0\0\1x"):
        apis.client.delete(key)
        apis.client.rpush(key, junk)
        assert apis.inspection.find(raw_id).state is State.GONE
    apis.client.delete(key)
    apis.client.hset(key, "a", "b")
    assert apis.inspection.find(raw_id).state is State.GONE


def test_waiting_removes_nothing_and_keeps_the_expiry(apis: ShardApis) -> None:
    raw_id = apis.add(ttl=HOUR)
    answers: list[bool] = []
    waiters = [
        threading.Thread(target=lambda: answers.append(wait_for_result(apis.shard, raw_id, 30))) for _ in range(3)
    ]
    assert not wait_for_result(apis.shard, raw_id, 0.01)
    for waiter in waiters:
        waiter.start()
    finish(apis, raw_id)
    for waiter in waiters:
        waiter.join()
    # A wait blocks for a second at most. Under load it may end before the thread that ends the job runs.
    assert wait_for_result(apis.shard, raw_id, 1)
    assert len(answers) == 3
    assert apis.client.llen(apis.keys.results(raw_id)) == 1
    assert 0 < apis.client.pttl(apis.keys.results(raw_id)) <= 60_000
    assert apis.inspection.find(raw_id).state is State.DONE


def test_a_kept_result_is_stored_when_memory_is_full(own_apis: ShardApis) -> None:
    raw_id, worker = own_apis.add(ttl=HOUR), own_apis.worker()
    [claim] = worker.take(1).claims
    own_apis.fill_memory()
    assert not worker.settle(claim, Action.ACKNOWLEDGE, value="1").lost
    assert own_apis.inspection.find(raw_id).state is State.DONE
