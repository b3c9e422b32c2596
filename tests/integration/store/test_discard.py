"""Discard: a dead letter is dropped for good."""

from tests.shard_apis import SECOND, START, Doors


def test_discard_leaves_nothing_of_the_dead_letter(doors: Doors) -> None:
    raw_id = doors.add_dead(key="k")
    assert doors.operations.discard(raw_id, died_us=START)
    assert doors.traces(raw_id) == []
    assert doors.inspection.dead_letter(raw_id) is None


def test_discard_leaves_other_dead_letters(doors: Doors) -> None:
    first, second = doors.add_dead(), doors.add_dead()
    doors.operations.discard(first, died_us=START)
    assert doors.where(second) == ["dead_letters"]
    assert doors.client.hkeys(doors.keys("dead_bodies")) == [second]


def test_discard_names_the_death_it_saw(doors: Doors) -> None:
    raw_id = doors.add_dead()
    doors.operations.requeue(raw_id, died_us=START)
    doors.clock.advance(SECOND)
    doors.kill(raw_id)
    assert not doors.operations.discard(raw_id, died_us=START)
    assert not doors.operations.discard(raw_id, died_us=START + SECOND + 1)
    assert doors.where(raw_id) == ["dead_letters"]
    assert doors.operations.discard(raw_id, died_us=START + SECOND)


def test_second_discard_and_unknown_ids_do_nothing(doors: Doors) -> None:
    raw_id = doors.add_dead()
    answers = [doors.operations.discard(raw_id, died_us=START) for _ in range(2)]
    assert answers == [True, False]
    assert not doors.operations.discard(b"\x01" * 12, died_us=START)


def test_living_job_is_not_discarded(doors: Doors) -> None:
    raw_id = doors.add()
    assert not doors.operations.discard(raw_id, died_us=START)
    assert doors.where(raw_id) == ["ready:default"]


def test_discard_leaves_the_key_of_its_new_holder(doors: Doors) -> None:
    dead = doors.add_dead(key="k")
    holder = doors.add(key="k")
    doors.operations.discard(dead, died_us=START)
    assert doors.enqueue(doors.draft(key="k")).held == {0: holder}


def test_full_memory_does_not_stop_discard(own_doors: Doors) -> None:
    raw_id = own_doors.add_dead()
    own_doors.fill_memory()
    assert own_doors.operations.discard(raw_id, died_us=START)


def test_flushed_scripts_are_loaded_again(doors: Doors) -> None:
    raw_id = doors.add_dead()
    doors.operations.discard(doors.add_dead(), died_us=START)
    doors.client.script_flush()
    assert doors.operations.discard(raw_id, died_us=START)
