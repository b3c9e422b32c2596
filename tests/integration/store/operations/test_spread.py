"""An even spread of requeued dead letters: its rate holds also when it is continued, repeated, or shared."""

from itertools import pairwise

import pytest

from django_delayq.store.operations.batch import BatchJob
from django_delayq.store.operations.spread import Spread
from tests.shard_apis import HOUR, MS, SECOND, START, ShardApis

MINUTE = 60 * SECOND


def letters(apis: ShardApis, count: int) -> list[BatchJob]:
    """Return a batch of new dead letters."""
    died = [apis.inspection.dead_letter(apis.add_dead()) for _ in range(count)]
    return [BatchJob(raw_id=each.raw_id, died_us=each.moment_us) for each in died if each]


def over_a_minute(name: bytes = b"name", *, left: int = 60) -> Spread:
    """Return the spread of a new caller."""
    return Spread(name=name, length_us=MINUTE, left=left)


def requeue(
    apis: ShardApis, jobs: list[BatchJob], spread: Spread | None = None, *, name: bytes = b"name", left: int = 60
) -> list[int]:
    """Requeue over a minute, as a new caller unless one is given, and return the due times."""
    spread = spread or over_a_minute(name, left=left)
    return [effect.due_us or 0 for effect in apis.operations.dead_letters.requeue(jobs, spread=spread)]


def spreads(apis: ShardApis) -> int:
    return int(apis.client.hlen(apis.keys("spreads")))


def test_each_job_has_an_even_place_within_the_time(apis: ShardApis) -> None:
    jobs, spread = letters(apis, 60), over_a_minute()
    dues = requeue(apis, jobs, spread)
    assert dues == [START + n * SECOND + SECOND // 2 for n in range(60)]
    assert list(apis.scheduled().values()) == dues
    assert spread.left == 0
    apis.operations.dead_letters.end_spread(spread)
    assert spreads(apis) == 0


def test_a_spread_is_continued_by_its_name(apis: ShardApis) -> None:
    jobs = letters(apis, 60)
    dues = requeue(apis, jobs[:20])
    apis.clock.advance(5 * SECOND)
    dues += requeue(apis, jobs[20:], left=40)
    assert dues == [START + n * SECOND + SECOND // 2 for n in range(60)]


def test_a_repeated_call_takes_no_places(apis: ShardApis) -> None:
    jobs = letters(apis, 60)
    requeue(apis, jobs[:20])
    assert requeue(apis, jobs[:20]) == [0] * 20
    assert requeue(apis, jobs[20:21], left=40) == [START + 20 * SECOND + SECOND // 2]


def test_places_that_passed_are_not_made_up_for(apis: ShardApis) -> None:
    jobs = letters(apis, 60)
    dues = requeue(apis, jobs[:10])
    apis.clock.advance(30 * SECOND)
    dues += requeue(apis, jobs[10:], left=50)
    assert dues[10] == START + 30 * SECOND + SECOND // 2
    assert min(later - earlier for earlier, later in pairwise(dues)) == SECOND


def test_a_spread_whose_time_is_over_begins_again(apis: ShardApis) -> None:
    jobs = letters(apis, 20)
    requeue(apis, jobs[:10], left=20)
    apis.clock.advance(MINUTE)
    dues = requeue(apis, jobs[10:], left=10)
    assert dues == [START + MINUTE + n * 6 * SECOND + 3 * SECOND for n in range(10)]


def test_a_smaller_spread_that_was_left_does_not_slow_a_later_one(apis: ShardApis) -> None:
    """One of two jobs was refused, so half of the places are free."""
    jobs = letters(apis, 61)
    assert requeue(apis, jobs[:1], left=2) == [START + 15 * SECOND]
    dues = requeue(apis, jobs[1:])
    assert dues == [START + 30 * SECOND + n * SECOND + SECOND // 2 for n in range(60)]


def test_a_call_for_more_jobs_than_are_left_keeps_the_rate(apis: ShardApis) -> None:
    jobs = letters(apis, 90)
    dues = requeue(apis, jobs[:20])
    # Meanwhile 20 jobs more have failed.
    dues += requeue(apis, jobs[20:50], left=60)
    dues += requeue(apis, jobs[50:80], left=30)
    assert dues == [START + n * SECOND + SECOND // 2 for n in range(80)]


def test_a_call_for_more_jobs_than_the_spread_has_places_is_faster(apis: ShardApis) -> None:
    jobs = letters(apis, 140)
    requeue(apis, jobs[:20])
    dues = requeue(apis, jobs[20:], left=120)
    assert dues == [START + 20 * SECOND + n * SECOND // 2 + SECOND // 4 for n in range(120)]


def test_two_callers_at_once_share_a_spread(apis: ShardApis) -> None:
    """Each counts what the other one requeues as left. The first that ends leaves the spread to the other."""
    jobs, first, second = letters(apis, 60), over_a_minute(), over_a_minute()
    dues = requeue(apis, jobs[:10], first) + requeue(apis, jobs[10:20], second)
    dues += requeue(apis, jobs[20:30], first) + requeue(apis, jobs[30:40], second)
    apis.operations.dead_letters.end_spread(first)
    assert spreads(apis) == 1
    # A third one begins before the second one ends.
    third = over_a_minute(left=20)
    dues += requeue(apis, jobs[40:50], third)
    apis.operations.dead_letters.end_spread(second)
    dues += requeue(apis, jobs[50:], third)
    assert dues == [START + n * SECOND + SECOND // 2 for n in range(60)]
    apis.operations.dead_letters.end_spread(third)
    assert spreads(apis) == 0


def test_a_caller_that_took_no_place_ends_nothing(apis: ShardApis) -> None:
    jobs, first, second = letters(apis, 2), over_a_minute(), over_a_minute()
    requeue(apis, jobs[:1], first)
    assert requeue(apis, jobs[:1], second) == [0]
    apis.operations.dead_letters.end_spread(second)
    assert requeue(apis, jobs[1:], first) == [START + SECOND + SECOND // 2]


def test_a_spread_goes_on_behind_its_time(apis: ShardApis) -> None:
    """Its last places lie behind its length: what is left then is not placed on top of them."""
    jobs = letters(apis, 101)
    requeue(apis, jobs[:50], left=60)
    requeue(apis, jobs[50:90], left=40)
    apis.clock.advance(70 * SECOND)
    assert requeue(apis, jobs[90:100], left=11)[0] == START + 90 * SECOND + SECOND // 2
    apis.clock.advance(30 * SECOND)
    assert requeue(apis, jobs[100:], left=1) == [apis.clock.now_us + MINUTE // 2]


def test_a_batch_of_several_calls_counts_what_each_has_sent(apis: ShardApis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_delayq.store.operations.batch._MAX_BYTES", 1)
    assert requeue(apis, letters(apis, 3), left=3) == [START + 10 * SECOND, START + 30 * SECOND, START + 50 * SECOND]


def test_a_spread_that_has_ended_is_forgotten(apis: ShardApis) -> None:
    jobs, spread = letters(apis, 3), over_a_minute()
    requeue(apis, jobs[:1], spread)
    apis.operations.dead_letters.end_spread(spread)
    assert spreads(apis) == 0
    assert requeue(apis, jobs[1:], left=2) == [START + 15 * SECOND, START + 45 * SECOND]


def test_spreads_of_other_names_and_lengths_are_others(apis: ShardApis) -> None:
    jobs = letters(apis, 3)
    first = requeue(apis, jobs[:1])
    assert requeue(apis, jobs[1:2], name=b"other") == first
    spread = Spread(name=b"name", length_us=HOUR, left=60)
    assert apis.operations.dead_letters.requeue(jobs[2:], spread=spread)[0].due_us == START + MINUTE // 2


def test_a_hundred_unfinished_spreads_are_remembered(apis: ShardApis) -> None:
    jobs = letters(apis, 103)
    for number, job in enumerate(jobs[:101]):
        apis.clock.advance(MS)
        requeue(apis, [job], name=f"{number}".encode())
    assert spreads(apis) == 100
    assert not apis.client.hexists(apis.keys("spreads"), b"0")
    # A record that was edited manually counts as none, and goes first.
    apis.client.hset(apis.keys("spreads"), b"1", b"?")
    requeue(apis, jobs[101:102], name=b"more")
    assert not apis.client.hexists(apis.keys("spreads"), b"1")
    apis.client.hset(apis.keys("spreads"), b"2", b"?")
    assert requeue(apis, jobs[102:], name=b"2") == [apis.clock.now_us + SECOND // 2]
