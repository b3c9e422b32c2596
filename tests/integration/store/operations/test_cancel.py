"""Cancel: a waiting job is removed without a trace; any other job is left alone."""

import pytest

from django_delayq.job.outcome import Action
from tests.shard_apis import HOUR, ShardApis


@pytest.mark.parametrize("delay", [None, HOUR])
@pytest.mark.parametrize("key", [None, "k"])
def test_cancel_leaves_nothing_of_a_waiting_job(apis: ShardApis, delay: int | None, key: str | None) -> None:
    raw_id = apis.add(delay=delay, key=key)
    assert apis.operations.cancel(raw_id)
    assert apis.traces(raw_id) == []
    assert not apis.client.exists(*(apis.keys(noun) for noun in ("jobs", "job_extras", "unique_keys", "attempts")))


def test_cancelled_job_never_runs(apis: ShardApis) -> None:
    raw_id = apis.add(delay=HOUR)
    apis.operations.cancel(raw_id)
    apis.clock.advance(2 * HOUR)
    assert apis.promote().moved == 0
    assert apis.worker().take(5).claims == []


def test_cancel_between_attempts_leaves_nothing(apis: ShardApis) -> None:
    raw_id = apis.add()
    worker = apis.worker()
    worker.settle(worker.take().claims[0], Action.RETRY, delay=HOUR)
    assert apis.operations.cancel(raw_id)
    assert apis.traces(raw_id) == []


def test_cancel_of_a_running_job_is_too_late(apis: ShardApis) -> None:
    raw_id = apis.add(key="k")
    worker = apis.worker()
    (claim,) = worker.take().claims
    assert not apis.operations.cancel(raw_id)
    assert apis.where(raw_id) == ["leases"]
    assert apis.enqueue(apis.draft(key="k")).held == {0: raw_id}
    assert not worker.settle(claim, Action.ACKNOWLEDGE).lost


def test_cancel_of_a_dead_job_is_too_late(apis: ShardApis) -> None:
    raw_id = apis.add_dead()
    assert not apis.operations.cancel(raw_id)
    assert apis.where(raw_id) == ["dead_letters"]


def test_cancel_of_a_job_that_is_gone_is_too_late(apis: ShardApis) -> None:
    raw_id = apis.add()
    assert [apis.operations.cancel(raw_id), apis.operations.cancel(raw_id)] == [True, False]
    assert not apis.operations.cancel(b"\x01" * 12)


def test_cancel_frees_the_key(apis: ShardApis) -> None:
    apis.operations.cancel(apis.add(key="k", delay=HOUR))
    assert not apis.enqueue(apis.draft(key="k", unique="reject")).held


def test_cancel_leaves_the_key_of_another_holder(apis: ShardApis) -> None:
    first = apis.draft(key="k")
    apis.enqueue(first)
    apis.kill(first.job.raw_id)
    second = apis.add(key="k")
    apis.operations.cancel(apis.add(key="other"))
    assert apis.enqueue(apis.draft(key="k")).held == {0: second}


def test_cancel_finds_a_job_that_was_moved(apis: ShardApis) -> None:
    raw_id = apis.add(delay=HOUR)
    apis.operations.move(raw_id, "other")
    assert apis.operations.cancel(raw_id)
    assert apis.traces(raw_id) == []


def test_full_memory_does_not_stop_cancel(own_apis: ShardApis) -> None:
    raw_id = own_apis.add(delay=HOUR)
    own_apis.fill_memory()
    assert own_apis.operations.cancel(raw_id)


def test_flushed_scripts_are_loaded_again(apis: ShardApis) -> None:
    raw_id = apis.add()
    apis.operations.cancel(apis.add())
    apis.client.script_flush()
    assert apis.operations.cancel(raw_id)


def test_cancel_again_with_its_token_is_still_true(apis: ShardApis) -> None:
    raw_id = apis.add()
    assert apis.operations.cancel(raw_id, token=b"mine")
    assert apis.operations.cancel(raw_id, token=b"mine")
    assert not apis.operations.cancel(raw_id, token=b"another")
    assert not apis.operations.cancel(b"\x01" * 12, token=b"mine")


def test_a_token_does_not_make_a_running_job_cancelled(apis: ShardApis) -> None:
    draft = apis.draft()
    apis.enqueue(draft)
    assert apis.operations.cancel(draft.job.raw_id, token=b"mine")
    apis.enqueue(draft)
    apis.worker().take()
    assert not apis.operations.cancel(draft.job.raw_id, token=b"mine")


def test_only_the_last_cancelled_ids_are_remembered(apis: ShardApis) -> None:
    places = [apis.keys(noun) for noun in ("cancelled", "withdrawn")]
    for place in places:
        apis.client.zadd(place, {b"%d" % number: number for number in range(10_000)})
    raw_id = apis.add()
    assert apis.operations.cancel(raw_id, token=b"mine", may_arrive=True)
    for place, entry in zip(places, (raw_id + b"mine", raw_id), strict=True):
        assert apis.client.zcard(place) == 10_000
        assert (apis.client.zscore(place, b"0"), apis.client.zscore(place, entry)) == (None, apis.clock.now_us)


@pytest.mark.parametrize("arrived", [True, False])
@pytest.mark.parametrize("key", [None, "k"])
def test_an_enqueue_that_arrives_after_its_cancel_is_refused(apis: ShardApis, arrived: bool, key: str | None) -> None:
    late, other = apis.draft(key=key), apis.draft(key=key)
    raw_id = late.job.raw_id
    if arrived:
        apis.enqueue(late)
    assert apis.operations.cancel(raw_id, may_arrive=True) is arrived
    assert not apis.enqueue(late, other).held
    assert apis.traces(raw_id) == ["withdrawn"]
    assert apis.where(other.job.raw_id) == ["ready:default"]


def test_nothing_is_recorded_without_a_token(apis: ShardApis) -> None:
    assert apis.operations.cancel(apis.add())
    assert not apis.client.exists(apis.keys("cancelled"), apis.keys("withdrawn"))
