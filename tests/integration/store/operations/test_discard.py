"""Discard: a dead letter is dropped for good."""

from tests.shard_apis import SECOND, START, ShardApis


def test_discard_leaves_nothing_of_the_dead_letter(apis: ShardApis) -> None:
    raw_id = apis.add_dead(key="k")
    assert apis.operations.discard(raw_id, died_us=START)
    assert apis.traces(raw_id) == []
    assert apis.inspection.dead_letter(raw_id) is None


def test_discard_leaves_other_dead_letters(apis: ShardApis) -> None:
    first, second = apis.add_dead(), apis.add_dead()
    apis.operations.discard(first, died_us=START)
    assert apis.where(second) == ["dead_letters"]
    assert apis.client.hkeys(apis.keys("dead_bodies")) == [second]


def test_discard_needs_the_current_time_of_death(apis: ShardApis) -> None:
    raw_id = apis.add_dead()
    apis.operations.requeue(raw_id, died_us=START)
    apis.clock.advance(SECOND)
    apis.kill(raw_id)
    assert not apis.operations.discard(raw_id, died_us=START)
    assert not apis.operations.discard(raw_id, died_us=START + SECOND + 1)
    assert apis.where(raw_id) == ["dead_letters"]
    assert apis.operations.discard(raw_id, died_us=START + SECOND)


def test_second_discard_and_unknown_ids_do_nothing(apis: ShardApis) -> None:
    raw_id = apis.add_dead()
    answers = [apis.operations.discard(raw_id, died_us=START) for _ in range(2)]
    assert answers == [True, False]
    assert not apis.operations.discard(b"\x01" * 12, died_us=START)


def test_living_job_is_not_discarded(apis: ShardApis) -> None:
    raw_id = apis.add()
    assert not apis.operations.discard(raw_id, died_us=START)
    assert apis.where(raw_id) == ["ready:default"]


def test_discard_leaves_the_key_of_its_new_holder(apis: ShardApis) -> None:
    dead = apis.add_dead(key="k")
    holder = apis.add(key="k")
    apis.operations.discard(dead, died_us=START)
    assert apis.enqueue(apis.draft(key="k")).held == {0: holder}


def test_full_memory_does_not_stop_discard(own_apis: ShardApis) -> None:
    raw_id = own_apis.add_dead()
    own_apis.fill_memory()
    assert own_apis.operations.discard(raw_id, died_us=START)


def test_flushed_scripts_are_loaded_again(apis: ShardApis) -> None:
    raw_id = apis.add_dead()
    apis.operations.discard(apis.add_dead(), died_us=START)
    apis.client.script_flush()
    assert apis.operations.discard(raw_id, died_us=START)
