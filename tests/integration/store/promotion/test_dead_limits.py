"""Dead letters: age, number and bytes are limited within seconds; each script that changes them counts their bytes."""

from collections.abc import Callable

import pytest

from django_delayq.job.outcome import Action
from django_delayq.store.maintenance.consistency_check import ConsistencyCheck
from tests.shard_apis import SECOND, ShardApis, settlement

SWEEP = 5 * SECOND
MIB = 1024 * 1024


def die(apis: ShardApis, count: int, *args: str) -> list[bytes]:
    """Let that many jobs die, one after the other, and return their ids, the oldest first."""
    drafts = [apis.draft(number, *args) for number in range(count)]
    worker = apis.worker()
    for at in range(0, count, 50):
        apis.enqueue(*drafts[at : at + 50])
        apis.clock.advance(1)
        claims = worker.take(50).claims
        while claims:
            worker.take(0, settle=[settlement(claim, Action.DEAD_LETTER) for claim in claims])
            claims = worker.take(50).claims
    return [draft.job.raw_id for draft in drafts]


def counted(apis: ShardApis) -> int:
    return int(apis.client.get(apis.keys("dead_bytes")) or 0)


def stored(apis: ShardApis) -> int:
    return sum(map(len, apis.client.hvals(apis.keys("dead_bodies"))))


def test_beyond_their_number_the_oldest_are_removed_in_steps_without_a_sleep(
    make_apis: Callable[..., ShardApis],
) -> None:
    apis = make_apis(DEAD_MAX_COUNT=10)
    letters = die(apis, 610)
    steps = [apis.promote() for _ in range(4)]
    assert [step.trimmed for step in steps] == [250, 250, 100, 0]
    assert [step.sleep_us for step in steps] == [0, 0, SWEEP, SWEEP]
    assert list(apis.scores(apis.keys("dead_letters"))) == letters[600:]
    assert counted(apis) == stored(apis) > 0


def test_exactly_one_step_of_them_is_followed_by_a_sleep(make_apis: Callable[..., ShardApis]) -> None:
    apis = make_apis(DEAD_MAX_COUNT=0)
    die(apis, 250)
    step = apis.promote()
    assert (step.trimmed, step.sleep_us) == (250, SWEEP)
    assert not apis.client.exists(apis.keys("dead_bytes"), apis.keys("dead_bodies"))


def test_beyond_their_age_they_are_removed_in_steps_without_a_sleep(make_apis: Callable[..., ShardApis]) -> None:
    apis = make_apis(DEAD_MAX_AGE=10)
    die(apis, 300)
    apis.clock.advance(10 * SECOND)
    steps = [apis.promote() for _ in range(2)]
    assert [(step.trimmed, step.sleep_us) for step in steps] == [(250, 0), (50, SWEEP)]


def test_beyond_their_bytes_the_oldest_are_removed(make_apis: Callable[..., ShardApis]) -> None:
    apis = make_apis(DEAD_MAX_BYTES=100_000)
    letters = die(apis, 100, "x" * 2_000)
    assert counted(apis) == stored(apis) > 200_000
    assert 50 < apis.promote().trimmed < 60
    left = list(apis.scores(apis.keys("dead_letters")))
    assert left == letters[-len(left) :]
    assert 98_000 < counted(apis) == stored(apis) <= 100_000


def test_one_step_frees_8_mib_and_always_something(make_apis: Callable[..., ShardApis]) -> None:
    apis = make_apis(DEAD_MAX_COUNT=0)
    die(apis, 40, "x" * 900_000)
    steps = [apis.promote() for _ in range(5)]
    # 9 of them are 8.1 MB, 10 are more than 8 MiB.
    assert [step.trimmed for step in steps] == [9, 9, 9, 9, 4]
    assert [step.sleep_us for step in steps] == [0, 0, 0, 0, SWEEP]


def test_a_letter_larger_than_a_step_is_removed_alone(make_apis: Callable[..., ShardApis]) -> None:
    apis = make_apis(DEAD_MAX_COUNT=0)
    for _ in range(2):
        raw_id = apis.add_dead()
        apis.client.hset(apis.keys("dead_bodies"), raw_id, b"x" * 9 * MIB)
    assert [apis.promote().trimmed for _ in range(3)] == [1, 1, 0]


def test_every_added_and_removed_dead_letter_is_counted(apis: ShardApis) -> None:
    requeued, discarded, _ = [apis.add_dead(key=f"{number}") for number in range(3)]
    died = apis.scores(apis.keys("dead_letters"))
    apis.add()
    apis.worker().take()
    assert counted(apis) == stored(apis) > 0
    assert apis.operations.requeue(requeued, died_us=died[requeued])
    assert counted(apis) == stored(apis) > 0
    assert apis.operations.discard(discarded, died_us=died[discarded])
    assert counted(apis) == stored(apis) > 0
    # Repeated, it counts once.
    assert not apis.operations.discard(discarded, died_us=died[discarded])
    assert counted(apis) == stored(apis) > 0


@pytest.mark.parametrize("damage", [b"5", b"x", b"-7", b"inf", b"nan", b"9" * 30, None])
def test_a_wrong_sum_is_found_and_corrected(apis: ShardApis, damage: bytes | None) -> None:
    apis.add_dead()
    apis.add_dead()
    if damage is None:
        apis.client.delete(apis.keys("dead_bytes"))
    else:
        apis.client.set(apis.keys("dead_bytes"), damage)
    check = ConsistencyCheck(apis.shard)
    assert [finding.code for finding in check.walk()] == ["MISCOUNTED"]
    assert [finding.code for finding in check.walk(repair=True)] == ["MISCOUNTED"]
    assert list(check.walk()) == []
    assert counted(apis) == stored(apis) > 0


def test_a_sum_that_changed_since_it_was_read_is_left_alone(apis: ShardApis) -> None:
    apis.add_dead()
    seen = apis.client.get(apis.keys("dead_bytes"))
    apis.add_dead()
    assert not ConsistencyCheck(apis.shard).audit_bytes(seen, int(seen) + 1)
    assert counted(apis) == stored(apis)


@pytest.mark.parametrize("damage", [b"x", b"inf", b"nan", b"-9", b"9" * 30])
def test_a_manually_edited_sum_removes_no_letter(apis: ShardApis, damage: bytes) -> None:
    apis.add_dead()
    apis.client.set(apis.keys("dead_bytes"), damage)
    assert apis.promote().trimmed == 0
    raw_id = apis.add_dead()
    assert apis.operations.discard(raw_id, died_us=apis.scores(apis.keys("dead_letters"))[raw_id])
    assert apis.promote().trimmed == 0


def test_repair_of_a_dead_body_without_a_letter_corrects_the_sum(apis: ShardApis) -> None:
    raw_id = apis.add_dead()
    apis.client.hset(apis.keys("dead_bodies"), b"short", b"x" * 10)
    check = ConsistencyCheck(apis.shard)
    for _ in range(3):
        if not list(check.walk(repair=True)):
            break
    assert apis.where(raw_id) == ["dead_letters"]
    assert counted(apis) == stored(apis) > 0
