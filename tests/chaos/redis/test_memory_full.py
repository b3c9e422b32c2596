"""Full memory: a new batch is refused as a whole, existing jobs run to their end, and memory use falls with them.

Redis checks its memory once, before a script, and never between two writes of it. The second half of this file moves
the limit in small steps around the memory in use.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from django_delayq import enqueue_many
from django_delayq.dispatcher.dispatcher import Dispatcher
from django_delayq.exceptions import StoreRejected
from django_delayq.job.outcome import Action
from django_delayq.testing.local_redis import LocalRedisServer
from tests.sample_app import tasks
from tests.shard_apis import SECOND, ShardApis, settlement
from tests.stateful import invariants, redis_state
from tests.subprocesses import Processes

FULL = {"maxmemory-policy": "noeviction"}
TEXT = "x" * 10_000


def test_full_memory_refuses_new_jobs_and_finishes_existing_ones(
    processes: Processes, start_redis: Callable[..., LocalRedisServer], gate: Path
) -> None:
    server = start_redis(options=FULL)
    # The lease is shorter than the time with full memory, so only heartbeats keep the claims.
    processes.configure(REDIS=server.url, LEASE=3)
    dispatcher, worker = processes.dispatcher(), processes.worker("--queues", "default", "--concurrency", 4)
    held = [tasks.wait_for.enqueue(str(gate)) for _ in range(2)]
    processes.until_runs(2)
    expiring = processes.worker("--queues", "expiring")
    lost = tasks.wait_for.using(queue="expiring").enqueue(str(gate))
    processes.until_runs(1, lost.id)
    waiting: list[Any] = []
    with server.client() as client:
        client.config_set("maxmemory", client.info("memory")["used_memory"] + 1_000_000)
        with pytest.raises(StoreRejected) as caught:
            while len(waiting) < 1_000:
                task = [tasks.record, tasks.fail, tasks.record, tasks.give_up][len(waiting) % 4]
                text = [TEXT] if task is tasks.record else [1] if task is tasks.fail else []
                job = task.using(key=f"key {len(waiting)}", delay=3_600).job(*text)
                enqueue_many([job])
                waiting.append(job)
        assert (caught.value.code, caught.value.maybe_accepted) == ("OOM", False)
        assert 50 < len(waiting) < 1_000
        # Memory that Redis frees meanwhile, such as client buffers, must not have room for a batch.
        client.config_set("maxmemory", client.info("memory")["used_memory"] - 300_000)
        leases = client.zrange(processes.keys("leases"), 0, -1, withscores=True)
        jobs = client.hlen(processes.keys("jobs"))
        batch = [tasks.record.job(TEXT) for _ in range(3)]
        with pytest.raises(StoreRejected):
            enqueue_many(batch)
        assert client.hlen(processes.keys("jobs")) == jobs == len(waiting) + len(held) + 1
        # A reclaim and heartbeats run while nothing else frees memory.
        expiring.kill()
        # A worker can start while memory is full.
        expiring = processes.worker("--queues", "expiring")
        assert processes.until_runs(2, lost.id)[1]["recovered"]
        last_end_us = max(end for _, end in leases)
        processes.until(lambda: client.time()[0] * SECOND > last_end_us, what="the end of leases without heartbeats")
        assert [run["attempt"] for run in processes.runs(held[0].id)] == [1]
        # A scheduled job can be cancelled or run earlier. Neither needs memory.
        cancelled = waiting.pop(2)
        assert cancelled.cancel()
        assert all(job.reschedule(delay=0.1) for job in waiting)
        gate.touch()
        processes.until_empty()
        # The memory has room again without any other action.
        caught.value.resend()
        [unsent] = caught.value.unsent
        assert unsent.reschedule(delay=0)
        processes.until(lambda: unsent.refresh().state in ("gone", "dead"), what="the refused job to end")
    runs = [(run["id"], run["attempt"]) for run in processes.runs()]
    assert len(set(runs)) == len(runs)
    gave_up = {job.id for job in waiting if job.refresh().state == "dead"}
    assert len(gave_up) >= len(waiting) // 4 - 1
    assert {job.id for job in waiting} - gave_up == {job for job, _ in runs} - {job.id for job in (*held, lost, unsent)}
    assert (waiting[1].id, 2) in runs
    assert (dispatcher.end(), worker.end(), expiring.end()) == (0, 0, 0)
    assert not dispatcher.failures
    assert "waits for Redis" not in dispatcher.output + worker.output


# At the limit


@pytest.fixture
def apis(start_redis: Callable[..., LocalRedisServer]) -> Iterator[ShardApis]:
    opened = ShardApis(start_redis(options=FULL).url)
    yield opened
    opened.close()


def read_checked(apis: ShardApis) -> dict[str, Any]:
    """Return the contents of Redis, after a check that each job is in one place."""
    found = redis_state.read(apis.client, apis.keys)
    invariants.check_each_job_is_in_one_place(found, apis.keys)
    return found


def set_room(apis: ShardApis, room: int) -> None:
    """Set the limit to that many bytes above the memory in use."""
    apis.client.config_set("maxmemory", apis.client.info("memory")["used_memory"] + room)


def test_batch_is_stored_or_refused_whole_at_any_memory_limit(apis: ShardApis) -> None:
    stored = refused = 0
    # The room goes from far too little to more than the batch needs.
    for room in range(-10_000, 30_000, 400):
        apis.free_memory()
        apis.client.flushall()
        apis.add()
        before = read_checked(apis)
        drafts = [apis.draft("x" * 200, key=f"k{n}", delay=(n % 2) * SECOND, queue=f"q{n % 3}") for n in range(20)]
        set_room(apis, room)
        try:
            apis.enqueue(*drafts)
            stored += 1
            assert len(read_checked(apis)[apis.keys("jobs")]) == 21
        except StoreRejected as error:
            refused += 1
            assert error.code == "OOM" and read_checked(apis) == before
    assert stored > 10 < refused


def test_no_other_transition_is_refused_or_partial_at_any_memory_limit(apis: ShardApis) -> None:
    for room in range(-500, 2_500, 100):
        apis.free_memory()
        apis.client.flushall()
        for step in prepare_transitions(apis, room):
            step()
            read_checked(apis)
        # Six jobs, the scheduled one and the dead one, minus the acknowledged, the dead and the cancelled one.
        assert len(read_checked(apis)[apis.keys("jobs")]) == 5


def prepare_transitions(apis: ShardApis, room: int) -> list[Callable[[], Any]]:
    """Make six jobs to claim, a scheduled one and a dead one, and set the limit; returns the transitions to try."""
    worker, other = apis.worker(), apis.worker()
    for number in range(6):
        apis.add("x" * 500, key=f"k{number}")
    waits, dead = apis.add(delay=SECOND), apis.add_dead(queue="dead")
    claims = worker.take(4).claims
    died_us = apis.scores(apis.keys("dead_letters"))[dead]
    set_room(apis, room)
    return [
        lambda: apis.operations.reschedule(waits, delay_us=2 * SECOND),
        lambda: apis.operations.move(waits, "another"),
        lambda: apis.operations.requeue(dead, died_us=died_us),
        lambda: other.take(2),
        lambda: worker.api.heartbeat([claim.lease for claim in claims]),
        lambda: worker.settle(claims[0], Action.RETRY, error="e" * 2_000),
        lambda: worker.settle(claims[1], Action.DEAD_LETTER, error="e" * 2_000),
        lambda: worker.take(1, settle=[settlement(claims[2], Action.RELEASE)]),
        lambda: worker.settle(claims[3], Action.ACKNOWLEDGE),
        lambda: apis.clock.advance(apis.config.worker.lease_us),
        apis.promote,
        Dispatcher(apis.shard, apis.promotion).step,
        lambda: apis.operations.cancel(waits),
    ]
