"""Enqueue again: a repeated id is no second job, and a held key returns its holder."""

import pytest

from django_delayq.exceptions import KeyHeld
from django_delayq.job.outcome import Action
from django_delayq.store import enqueue
from tests.shard_apis import HOUR, SECOND, ShardApis


@pytest.mark.parametrize("delay", [None, HOUR])
def test_a_repeated_id_is_no_second_job_while_the_job_waits(apis: ShardApis, delay: int | None) -> None:
    draft = apis.draft(delay=delay)
    apis.enqueue(draft)
    before = apis.scheduled(), apis.ready()
    apis.clock.advance(SECOND)
    apis.enqueue(draft, draft)
    assert (apis.scheduled(), apis.ready()) == before


def test_same_id_twice_in_one_batch_is_one_job(apis: ShardApis) -> None:
    draft = apis.draft()
    apis.enqueue(draft, draft)
    assert apis.where(draft.job.raw_id) == ["ready:default"]
    assert len(apis.worker().take(5).claims) == 1


def test_a_repeated_id_is_no_second_job_while_the_job_runs(apis: ShardApis) -> None:
    draft = apis.draft(key="k")
    apis.enqueue(draft)
    apis.worker().take()
    assert not apis.enqueue(draft).held
    assert apis.where(draft.job.raw_id) == ["leases"]


def test_a_repeated_id_is_no_second_job_if_the_job_is_dead(apis: ShardApis) -> None:
    draft = apis.draft(key="k")
    apis.enqueue(draft)
    apis.kill(draft.job.raw_id)
    apis.enqueue(draft)
    assert apis.where(draft.job.raw_id) == ["dead_letters"]
    assert not apis.client.exists(apis.keys("unique_keys"), apis.keys("jobs"))


def test_a_held_key_of_a_waiting_job_returns_its_holder(apis: ShardApis) -> None:
    first = apis.add(key="k", delay=HOUR)
    receipt = apis.enqueue(apis.draft("other"), apis.draft(key="k"), apis.draft(key="l"))
    assert receipt.held == {1: first}
    assert len(apis.ready()) == 2
    assert apis.client.hlen(apis.keys("jobs")) == 3


def test_second_use_of_a_key_in_one_batch_returns_the_first_job(apis: ShardApis) -> None:
    first, second = apis.draft(1, key="k"), apis.draft(2, key="k")
    assert apis.enqueue(first, second).held == {1: first.job.raw_id}
    assert list(apis.ready()) == [first.job.raw_id]


def test_key_of_a_running_job_is_held(apis: ShardApis) -> None:
    first = apis.add(key="k")
    apis.worker().take()
    assert apis.enqueue(apis.draft(key="k")).held == {0: first}


def test_repeated_send_of_a_keyed_job_is_not_held_by_itself(apis: ShardApis) -> None:
    draft = apis.draft(key="k", unique="reject")
    apis.enqueue(draft)
    assert not apis.enqueue(draft).held


@pytest.mark.parametrize("held_before", [True, False])
def test_rejected_key_names_the_holder_and_stores_nothing_of_the_batch(apis: ShardApis, held_before: bool) -> None:
    holder = apis.draft(key="k", unique="reject")
    batch = [apis.draft(), holder, apis.draft(key="k", unique="reject"), apis.draft()]
    if held_before:
        apis.enqueue(holder)
        batch.remove(holder)
    with pytest.raises(KeyHeld) as error:
        apis.enqueue(*batch)
    assert error.value.holder == holder.job.raw_id.hex()
    assert error.value.index == (1 if held_before else 2)
    assert apis.client.hlen(apis.keys("jobs")) == held_before
    assert len(apis.ready()) == held_before


def test_keys_of_different_tasks_are_different(apis: ShardApis) -> None:
    digests = [
        enqueue.key_digest(task, key, tenant)
        for task, key, tenant in (
            ("a.task", "k", None),
            ("b.task", "k", None),
            ("a.task", "k", "t"),
            ("a.task", "tk", ""),
        )
    ]
    assert len(set(digests)) == 4


@pytest.mark.parametrize("ending", [Action.ACKNOWLEDGE, Action.DEAD_LETTER])
def test_key_is_free_again_when_its_job_has_ended(apis: ShardApis, ending: Action) -> None:
    apis.add(key="k")
    worker = apis.worker()
    worker.settle(worker.take().claims[0], ending)
    assert not apis.enqueue(apis.draft(key="k", unique="reject")).held


@pytest.mark.parametrize("ending", [Action.RETRY, Action.RELEASE])
def test_key_stays_held_while_its_job_is_tried_again(apis: ShardApis, ending: Action) -> None:
    first = apis.add(key="k")
    worker = apis.worker()
    worker.settle(worker.take().claims[0], ending)
    assert apis.enqueue(apis.draft(key="k")).held == {0: first}
