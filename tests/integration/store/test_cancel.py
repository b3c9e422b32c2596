"""Cancel: a job that waits is gone as if it had never been; a job that does not wait is left alone."""

import pytest

from django_delayq.job.outcome import Action
from tests.shard_apis import HOUR, Doors


@pytest.mark.parametrize("delay", [None, HOUR])
@pytest.mark.parametrize("key", [None, "k"])
def test_cancel_leaves_nothing_of_a_waiting_job(doors: Doors, delay: int | None, key: str | None) -> None:
    raw_id = doors.add(delay=delay, key=key)
    assert doors.operations.cancel(raw_id)
    assert doors.traces(raw_id) == []
    assert not doors.client.exists(*(doors.keys(noun) for noun in ("jobs", "job_extras", "unique_keys", "attempts")))


def test_cancelled_job_never_runs(doors: Doors) -> None:
    raw_id = doors.add(delay=HOUR)
    doors.operations.cancel(raw_id)
    doors.clock.advance(2 * HOUR)
    assert doors.promote().moved == 0
    assert doors.worker().take(5).claims == []


def test_cancel_between_attempts_leaves_nothing(doors: Doors) -> None:
    raw_id = doors.add()
    worker = doors.worker()
    worker.settle(worker.take().claims[0], Action.RETRY, delay=HOUR)
    assert doors.operations.cancel(raw_id)
    assert doors.traces(raw_id) == []


def test_cancel_of_a_running_job_is_too_late(doors: Doors) -> None:
    raw_id = doors.add(key="k")
    worker = doors.worker()
    (claim,) = worker.take().claims
    assert not doors.operations.cancel(raw_id)
    assert doors.where(raw_id) == ["leases"]
    assert doors.enqueue(doors.draft(key="k")).held == {0: raw_id}
    assert not worker.settle(claim, Action.ACKNOWLEDGE).lost


def test_cancel_of_a_dead_job_is_too_late(doors: Doors) -> None:
    raw_id = doors.add_dead()
    assert not doors.operations.cancel(raw_id)
    assert doors.where(raw_id) == ["dead_letters"]


def test_cancel_of_a_job_that_is_gone_is_too_late(doors: Doors) -> None:
    raw_id = doors.add()
    assert [doors.operations.cancel(raw_id), doors.operations.cancel(raw_id)] == [True, False]
    assert not doors.operations.cancel(b"\x01" * 12)


def test_cancel_frees_the_key(doors: Doors) -> None:
    doors.operations.cancel(doors.add(key="k", delay=HOUR))
    assert not doors.enqueue(doors.draft(key="k", reject=True)).held


def test_cancel_leaves_the_key_of_another_holder(doors: Doors) -> None:
    first = doors.draft(key="k")
    doors.enqueue(first)
    doors.kill(first.job.raw_id)
    second = doors.add(key="k")
    doors.operations.cancel(doors.add(key="other"))
    assert doors.enqueue(doors.draft(key="k")).held == {0: second}


def test_cancel_finds_a_job_that_was_moved(doors: Doors) -> None:
    raw_id = doors.add(delay=HOUR)
    doors.operations.move(raw_id, "other")
    assert doors.operations.cancel(raw_id)
    assert doors.traces(raw_id) == []


def test_full_memory_does_not_stop_cancel(own_doors: Doors) -> None:
    raw_id = own_doors.add(delay=HOUR)
    own_doors.fill_memory()
    assert own_doors.operations.cancel(raw_id)


def test_flushed_scripts_are_loaded_again(doors: Doors) -> None:
    raw_id = doors.add()
    doors.operations.cancel(doors.add())
    doors.client.script_flush()
    assert doors.operations.cancel(raw_id)


def test_cancel_again_with_its_token_is_still_true(doors: Doors) -> None:
    raw_id = doors.add()
    assert doors.operations.cancel(raw_id, token=b"mine")
    assert doors.operations.cancel(raw_id, token=b"mine")
    assert not doors.operations.cancel(raw_id, token=b"another")
    assert not doors.operations.cancel(b"\x01" * 12, token=b"mine")


def test_a_token_does_not_make_a_running_job_cancelled(doors: Doors) -> None:
    draft = doors.draft()
    doors.enqueue(draft)
    assert doors.operations.cancel(draft.job.raw_id, token=b"mine")
    doors.enqueue(draft)
    doors.worker().take()
    assert not doors.operations.cancel(draft.job.raw_id, token=b"mine")


def test_only_the_last_cancelled_ids_are_remembered(doors: Doors) -> None:
    places = [doors.keys(noun) for noun in ("cancelled", "withdrawn")]
    for place in places:
        doors.client.zadd(place, {b"%d" % number: number for number in range(10_000)})
    raw_id = doors.add()
    assert doors.operations.cancel(raw_id, token=b"mine", on_its_way=True)
    for place, entry in zip(places, (raw_id + b"mine", raw_id), strict=True):
        assert doors.client.zcard(place) == 10_000
        assert (doors.client.zscore(place, b"0"), doors.client.zscore(place, entry)) == (None, doors.clock.now_us)


@pytest.mark.parametrize("arrived", [True, False])
@pytest.mark.parametrize("key", [None, "k"])
def test_an_enqueue_that_arrives_after_its_cancel_is_refused(doors: Doors, arrived: bool, key: str | None) -> None:
    late, other = doors.draft(key=key), doors.draft(key=key)
    raw_id = late.job.raw_id
    if arrived:
        doors.enqueue(late)
    assert doors.operations.cancel(raw_id, on_its_way=True) is arrived
    assert not doors.enqueue(late, other).held
    assert doors.traces(raw_id) == ["withdrawn"]
    assert doors.where(other.job.raw_id) == ["ready:default"]


def test_nothing_is_noted_for_those_who_do_not_ask(doors: Doors) -> None:
    assert doors.operations.cancel(doors.add())
    assert not doors.client.exists(doors.keys("cancelled"), doors.keys("withdrawn"))
