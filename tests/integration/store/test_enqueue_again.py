"""Enqueue, again: the same id is no second job, and a held key leads to its holder."""

import pytest

from django_delayq.exceptions import KeyHeld
from django_delayq.job.outcome import Action
from django_delayq.store import enqueue
from tests.shard_apis import HOUR, SECOND, Doors


@pytest.mark.parametrize("delay", [None, HOUR])
def test_same_id_again_is_no_second_job_while_it_waits(doors: Doors, delay: int | None) -> None:
    draft = doors.draft(delay=delay)
    doors.enqueue(draft)
    before = doors.schedule(), doors.ready()
    doors.clock.advance(SECOND)
    doors.enqueue(draft, draft)
    assert (doors.schedule(), doors.ready()) == before


def test_same_id_twice_in_one_batch_is_one_job(doors: Doors) -> None:
    draft = doors.draft()
    doors.enqueue(draft, draft)
    assert doors.where(draft.job.raw_id) == ["ready:default"]
    assert len(doors.worker().take(5).claims) == 1


def test_same_id_again_is_no_second_job_while_it_runs(doors: Doors) -> None:
    draft = doors.draft(key="k")
    doors.enqueue(draft)
    doors.worker().take()
    assert not doors.enqueue(draft).held
    assert doors.where(draft.job.raw_id) == ["leases"]


def test_same_id_again_is_no_second_job_when_it_is_dead(doors: Doors) -> None:
    draft = doors.draft(key="k")
    doors.enqueue(draft)
    doors.kill(draft.job.raw_id)
    doors.enqueue(draft)
    assert doors.where(draft.job.raw_id) == ["dead_letters"]
    assert not doors.client.exists(doors.keys("unique_keys"), doors.keys("jobs"))


def test_key_of_a_waiting_job_gives_its_holder(doors: Doors) -> None:
    first = doors.add(key="k", delay=HOUR)
    receipt = doors.enqueue(doors.draft("other"), doors.draft(key="k"), doors.draft(key="l"))
    assert receipt.held == {1: first}
    assert len(doors.ready()) == 2
    assert doors.client.hlen(doors.keys("jobs")) == 3


def test_second_use_of_a_key_in_one_batch_gives_the_first_one(doors: Doors) -> None:
    first, second = doors.draft(1, key="k"), doors.draft(2, key="k")
    assert doors.enqueue(first, second).held == {1: first.job.raw_id}
    assert list(doors.ready()) == [first.job.raw_id]


def test_key_of_a_running_job_is_held(doors: Doors) -> None:
    first = doors.add(key="k")
    doors.worker().take()
    assert doors.enqueue(doors.draft(key="k")).held == {0: first}


def test_repeated_send_of_a_keyed_job_is_not_held_by_itself(doors: Doors) -> None:
    draft = doors.draft(key="k", reject=True)
    doors.enqueue(draft)
    assert not doors.enqueue(draft).held


@pytest.mark.parametrize("held_before", [True, False])
def test_rejected_key_names_the_holder_and_stores_nothing_of_the_batch(doors: Doors, held_before: bool) -> None:
    holder = doors.draft(key="k", reject=True)
    batch = [doors.draft(), holder, doors.draft(key="k", reject=True), doors.draft()]
    if held_before:
        doors.enqueue(holder)
        batch.remove(holder)
    with pytest.raises(KeyHeld) as error:
        doors.enqueue(*batch)
    assert error.value.holder == holder.job.raw_id.hex()
    assert error.value.index == (1 if held_before else 2)
    assert doors.client.hlen(doors.keys("jobs")) == held_before
    assert len(doors.ready()) == held_before


def test_keys_of_different_tasks_do_not_meet(doors: Doors) -> None:
    assert enqueue.key_digest("a.task", "k") != enqueue.key_digest("b.task", "k")


@pytest.mark.parametrize("ending", [Action.ACKNOWLEDGE, Action.DEAD_LETTER])
def test_key_is_free_again_when_its_job_has_ended(doors: Doors, ending: Action) -> None:
    doors.add(key="k")
    worker = doors.worker()
    worker.settle(worker.take().claims[0], ending)
    assert not doors.enqueue(doors.draft(key="k", reject=True)).held


@pytest.mark.parametrize("ending", [Action.RETRY, Action.RELEASE])
def test_key_stays_held_while_its_job_is_tried_again(doors: Doors, ending: Action) -> None:
    first = doors.add(key="k")
    worker = doors.worker()
    worker.settle(worker.take().claims[0], ending)
    assert doors.enqueue(doors.draft(key="k")).held == {0: first}
