"""Many queues: an exchange claims exactly the first jobs of one sorted list, and notifies of the rest."""

import random

import pytest

from tests.shard_apis import ShardApis, ids

Waiting = dict[str, list[tuple[int, bytes]]]


def fill(apis: ShardApis, sizes: list[int], rng: random.Random) -> Waiting:
    """Fill queues with jobs of random priority. Return each queue's ranks and ids, best first."""
    names = [f"queue-{number:02}" for number in range(len(sizes))]
    drafts = [
        apis.draft(queue=name, priority=rng.randint(-100, 100))
        for name, size in zip(names, sizes, strict=True)
        for _ in range(size)
    ]
    for at in range(0, len(drafts), 500):
        apis.enqueue(*drafts[at : at + 500])
    # As in Redis: jobs of the same rank are in the order of their ids.
    return {name: [(rank, raw_id) for raw_id, rank in apis.ready(name).items()] for name in names}


def best_first(waiting: Waiting, *, strict: bool) -> list[tuple[str, bytes]]:
    """Return (queue, id) in the order of claims: between queues a tie goes to the one that is served first."""
    rows = [
        ((0, served, at) if strict else (rank, served, at), queue, raw_id)
        for served, (queue, jobs) in enumerate(waiting.items())
        for at, (rank, raw_id) in enumerate(jobs)
    ]
    return [(queue, raw_id) for _, queue, raw_id in sorted(rows)]


def check(apis: ShardApis, waiting: Waiting, want: int, *, strict: bool) -> None:
    """Claim everything, and compare each exchange with the list."""
    queues = list(waiting)
    notify_keys = [apis.keys.notify(queue) for queue in queues]
    expected = best_first(waiting, strict=strict)
    worker = apis.worker()
    while expected:
        apis.notifications(*notify_keys)
        answer = worker.take(want, *queues, strict=strict)
        assert [(claim.queue, claim.raw_id) for claim in answer.claims] == expected[:want]
        expected = expected[want:]
        assert answer.has_more == bool(expected)
        left = [queue for queue in queues if any(queue == other for other, _ in expected)]
        notified = [queue for queue, count in zip(queues, apis.notifications(*notify_keys), strict=True) if count]
        # In strict order the worker itself claims again; at least the best remaining queue notifies others.
        assert set(notified) <= set(left) and notified[:1] == left[:1] if strict else notified == left
    assert not worker.take(want, *queues, strict=strict).claims


@pytest.mark.parametrize("strict", [False, True], ids=["best first", "strict"])
def test_the_best_jobs_of_forty_queues_come_first(strict: bool, apis: ShardApis) -> None:
    check(apis, fill(apis, [30] * 40, random.Random(5)), 64, strict=strict)


@pytest.mark.parametrize("seed", range(12))
def test_few_and_many_uneven_and_empty(seed: int, apis: ShardApis) -> None:
    rng = random.Random(seed)
    waiting = fill(apis, [rng.choice([0, 1, 2, rng.randint(3, 20)]) for _ in range(rng.randint(1, 12))], rng)
    check(apis, waiting, rng.randint(1, 9), strict=seed % 3 == 0)


def test_invalid_entries_of_a_queue_are_dropped_and_the_rest_is_claimed(apis: ShardApis) -> None:
    first, second = apis.add(queue="a"), apis.add(queue="b")
    for queue in ("a", "b"):
        apis.client.zadd(apis.keys.ready(queue), {b"short": 1, b"longer than members are": 2})
    assert ids(apis.worker().take(8, "a", "b").claims) == [first, second]
    assert not apis.ready("a") and not apis.ready("b")


def test_a_repeat_names_the_right_one_of_more_queues_than_16_bits_count(apis: ShardApis) -> None:
    queues = [f"{number:x}" for number in range(65_537)]
    last = apis.add(queue=queues[-1])
    worker = apis.worker()
    taken = worker.take(1, *queues).claims
    assert [(claim.raw_id, claim.queue) for claim in taken] == [(last, queues[-1])]
    assert [(claim.raw_id, claim.queue) for claim in worker.again().claims] == [(last, queues[-1])]
