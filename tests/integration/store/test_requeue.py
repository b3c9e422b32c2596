"""Requeue: a dead letter waits again, as itself."""

import pytest

from django_delayq.exceptions import KeyHeld
from django_delayq.outcome import Settle
from tests.doors import DAY, HOUR, SECOND, START, Doors


def test_dead_letter_is_ready_again_with_its_body_and_priority(doors: Doors) -> None:
    raw_id = doors.add("argument", priority=-7)
    body = doors.client.hget(doors.keys("bodies"), raw_id)
    doors.kill(raw_id)
    doors.clock.turn(HOUR)
    assert doors.operations.requeue(raw_id, died_us=START) == START + HOUR
    assert doors.where(raw_id) == ["ready:default"]
    assert doors.client.hget(doors.keys("bodies"), raw_id) == body
    assert not doors.client.exists(doors.keys("dead_bodies"))


@pytest.mark.parametrize("delay", [1, SECOND, 365 * DAY])
def test_dead_letter_can_be_put_off_to_the_microsecond(doors: Doors, delay: int) -> None:
    raw_id = doors.add_dead()
    assert doors.operations.requeue(raw_id, died_us=START, delay_us=delay) == START + delay
    assert doors.schedule() == {raw_id: START + delay}


def test_attempts_are_counted_anew_and_the_history_is_kept(doors: Doors) -> None:
    raw_id = doors.add()
    worker = doors.worker()
    worker.settle(worker.take().claims[0], Settle.RETRY, error="first")
    doors.promote()
    worker.settle(worker.take().claims[0], Settle.DEAD_LETTER, error="second")
    doors.operations.requeue(raw_id, died_us=START)
    (claim,) = worker.take().claims
    assert claim.attempt == 1
    assert not claim.attempts.suspect
    assert [entry["error"] for entry in claim.attempts.history] == ["first", "second"]


def test_requeued_job_ends_like_any_other(doors: Doors) -> None:
    raw_id = doors.add_dead(key="k")
    doors.operations.requeue(raw_id, died_us=START)
    worker = doors.worker()
    worker.settle(worker.take().claims[0], Settle.ACKNOWLEDGE)
    assert doors.traces(raw_id) == []


def test_requeue_names_the_death_it_saw(doors: Doors) -> None:
    raw_id = doors.add_dead()
    assert doors.operations.requeue(raw_id, died_us=START - 1) is None
    assert doors.operations.requeue(raw_id, died_us=START + 1) is None
    assert doors.where(raw_id) == ["dead_letters"]


def test_click_on_a_page_of_an_earlier_death_does_nothing(doors: Doors) -> None:
    raw_id = doors.add_dead()
    doors.operations.requeue(raw_id, died_us=START)
    doors.clock.turn(SECOND)
    doors.kill(raw_id)
    assert doors.operations.requeue(raw_id, died_us=START) is None
    assert doors.operations.requeue(raw_id, died_us=START + SECOND) == START + SECOND


def test_second_requeue_of_one_death_does_nothing(doors: Doors) -> None:
    raw_id = doors.add_dead()
    assert doors.operations.requeue(raw_id, died_us=START) == START
    assert doors.operations.requeue(raw_id, died_us=START) is None
    assert doors.where(raw_id) == ["ready:default"]


def test_unknown_and_living_jobs_are_not_requeued(doors: Doors) -> None:
    raw_id = doors.add()
    assert doors.operations.requeue(raw_id, died_us=START) is None
    assert doors.operations.requeue(b"\x01" * 12, died_us=START) is None
    assert doors.where(raw_id) == ["ready:default"]


def test_requeue_takes_the_key_again(doors: Doors) -> None:
    raw_id = doors.add_dead(key="k")
    doors.operations.requeue(raw_id, died_us=START)
    assert doors.enqueue(doors.draft(key="k")).held == {0: raw_id}


def test_requeue_is_refused_while_the_key_is_another_jobs(doors: Doors) -> None:
    raw_id = doors.add_dead(key="k")
    holder = doors.add(key="k")
    with pytest.raises(KeyHeld):
        doors.operations.requeue(raw_id, died_us=START)
    assert doors.where(raw_id) == ["dead_letters"]
    doors.operations.cancel(holder)
    assert doors.operations.requeue(raw_id, died_us=START) == START


def test_requeue_rings(doors: Doors) -> None:
    first, second = doors.add_dead(), doors.add_dead()
    doors.promote()
    bells = [doors.keys.bell("default"), doors.keys("alarm")]
    doors.rings(*bells)
    doors.operations.requeue(first, died_us=START)
    assert doors.rings(*bells) == [1, 0]
    doors.operations.requeue(second, died_us=START, delay_us=SECOND)
    assert doors.rings(*bells) == [0, 1]


def test_full_memory_does_not_lose_the_dead_letter(own_doors: Doors) -> None:
    raw_id = own_doors.add_dead(key="k")
    own_doors.fill_memory()
    assert own_doors.operations.requeue(raw_id, died_us=START) == START
    assert own_doors.where(raw_id) == ["ready:default"]


def test_flushed_scripts_are_loaded_again(doors: Doors) -> None:
    first, second = doors.add_dead(), doors.add_dead()
    doors.operations.requeue(first, died_us=START)
    doors.client.script_flush()
    assert doors.operations.requeue(second, died_us=START) == START
