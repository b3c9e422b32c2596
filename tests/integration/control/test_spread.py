"""requeue(spread=…): its rate holds in any ten seconds, also when a process is killed and another one continues."""

from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from django_delayq import get_store, jobs
from django_delayq.job.outcome import Action
from django_delayq.store.operations.dead_letters import DeadLetters
from tests.shard_apis import SECOND, ShardApis, settlement

#: Dead letters, and the time over which they are spread.
LETTERS, SPREAD = 1_200, timedelta(minutes=10)
WINDOW = 10 * SECOND
#: Jobs in ten seconds at the even rate.
EVEN = LETTERS // 60


@pytest.fixture(params=[1, 2])
def shards(request: pytest.FixtureRequest, delayq_settings: Any, redis_url: str) -> Iterator[list[ShardApis]]:
    """The shards of the store, with dead letters in each."""
    count = request.param
    delayq_settings.DELAYQ = {"REDIS": redis_url, "SHARDS": count}
    apis = [ShardApis(redis_url, clock=get_store()._clock, shard=shard, SHARDS=count) for shard in range(count)]
    for shard, each in enumerate(apis):
        each.enqueue(*(each.draft(number) for number in range(shard, LETTERS, count)))
        kill_all(each)
    yield apis
    for each in apis:
        each.close()


def kill_all(apis: ShardApis) -> None:
    """Make every ready job a dead letter."""
    worker = apis.worker()
    while claims := worker.take(64).claims:
        worker.take(0, settle=[settlement(claim, Action.DEAD_LETTER) for claim in claims])


def test_a_refused_job_leaves_nothing_of_a_spread(shards: list[ShardApis]) -> None:
    """A damaged job keeps its place free; a later call with the same filter is not for its place."""
    for apis in shards:
        died = min(apis.client.zrange(apis.keys("dead_letters"), 0, 0))
        stored = apis.client.hget(apis.keys("dead_bodies"), died)
        apis.client.hset(apis.keys("dead_bodies"), died, stored[:30])
    assert jobs(state="failed").requeue(spread=SPREAD) == LETTERS - len(shards)
    assert not any(apis.client.exists(apis.keys("spreads")) for apis in shards)


def test_ids_are_spread_over_the_whole_time(shards: list[ShardApis]) -> None:
    """Ids of jobs that have not failed get no places."""
    for number in range(20):
        shards[0].add(number)
    waiting = [job.id for job in jobs(state="ready")]
    failed = [job.id for job, _ in zip(jobs(state="failed"), range(20), strict=False)]
    assert jobs(ids=[*waiting, *failed]).requeue(spread=SPREAD) == 20
    moments = dues(shards)
    assert moments[-1] - moments[0] == 19 * 30 * SECOND


def dues(shards: list[ShardApis]) -> list[int]:
    """Return the due times of all scheduled jobs, in their order."""
    return sorted(due for apis in shards for due in apis.scheduled().values())


def waiting(shards: list[ShardApis]) -> int:
    """Return how many jobs wait. On a slow machine the first of them is ready before the last one has its place."""
    return sum(len(apis.scheduled()) + len(apis.ready()) for apis in shards)


def most_in_a_window(moments: list[int]) -> int:
    """Return the most moments within any ten seconds."""
    first, most = 0, 0
    for last, moment in enumerate(moments):
        while moment - moments[first] >= WINDOW:
            first += 1
        most = max(most, last - first + 1)
    return most


def test_a_spread_is_even(shards: list[ShardApis]) -> None:
    assert jobs(state="failed").requeue(spread=SPREAD) == LETTERS
    moments = dues(shards)
    assert waiting(shards) == LETTERS
    assert most_in_a_window(moments) <= EVEN * 1.01 + len(shards)
    assert timedelta(microseconds=moments[-1] - moments[0]) > timedelta(minutes=9)


@pytest.mark.parametrize("filters", [{}, {"queue": "default", "task": "noop"}])
def test_a_spread_that_was_interrupted_is_continued(
    shards: list[ShardApis], filters: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process ends after its batch was carried out, and before its reply arrived."""
    requeue, calls = DeadLetters.requeue, []

    def ends(self: DeadLetters, batch: Any, **options: Any) -> Any:
        calls.append(requeue(self, batch, **options))
        if len(calls) in (2, 3):
            raise SystemExit
        return calls[-1]

    monkeypatch.setattr(DeadLetters, "requeue", ends)
    for _ in range(2):
        with pytest.raises(SystemExit):
            jobs(state="failed", **filters).requeue(spread=SPREAD)
    assert 0 < jobs(state="failed", **filters).requeue(spread=SPREAD) < LETTERS
    assert jobs(state="failed", **filters).requeue(spread=SPREAD) == 0
    moments = dues(shards)
    assert waiting(shards) == LETTERS
    assert most_in_a_window(moments) <= EVEN * 1.01 + len(shards)
    if len(shards) == 1:
        assert min(later - earlier for earlier, later in pairwise(moments)) >= 490_000


def test_calls_at_once_share_the_spread(shards: list[ShardApis]) -> None:
    """Each call begins the next one after its first batch: four of them take turns, and the last one ends first."""
    changed = list[int]()

    def begin_another(*_: int) -> None:
        if len(began) < 4:
            began.append(1)
            changed.append(jobs(state="failed").requeue(spread=SPREAD, on_progress=begin_another))

    began = [1]
    changed.append(jobs(state="failed").requeue(spread=SPREAD, on_progress=begin_another))
    assert sum(changed) == LETTERS and all(0 < number < LETTERS for number in changed)
    moments = dues(shards)
    assert waiting(shards) == LETTERS
    assert most_in_a_window(moments) <= EVEN * 1.01 + len(shards)
    assert timedelta(minutes=9) < timedelta(microseconds=moments[-1] - moments[0]) < SPREAD
    assert not any(apis.client.exists(apis.keys("spreads")) for apis in shards)
