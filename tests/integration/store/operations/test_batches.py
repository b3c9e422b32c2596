"""Operations on many jobs: one call, an effect for each job, and the same transitions as one by one."""

import pytest

from django_delayq.exceptions import BadBody, KeyHeld
from django_delayq.store.maintenance.consistency_check import ConsistencyCheck
from django_delayq.store.operations.batch import BatchJob
from tests.shard_apis import DAY, HOUR, LARGE_TEXT, START, ShardApis


def jobs(*raw_ids: bytes) -> list[BatchJob]:
    """Return a batch of waiting jobs."""
    return [BatchJob(raw_id=raw_id) for raw_id in raw_ids]


def letters(apis: ShardApis, *raw_ids: bytes) -> list[BatchJob]:
    """Return a batch of dead letters as they are now."""
    died = apis.client.zmscore(apis.keys("dead_letters"), list(raw_ids))
    return [BatchJob(raw_id=raw_id, died_us=int(at or 0)) for raw_id, at in zip(raw_ids, died, strict=True)]


def mixed(apis: ShardApis) -> tuple[list[bytes], bytes, bytes]:
    """Return waiting jobs of several queues and places, a running job, and the id of no job."""
    running = apis.add(queue="runs")
    apis.worker().take(1, "runs")
    waiting = [apis.add(queue=f"q{n % 3}", delay=HOUR if n % 2 else None, key=f"{n}") for n in range(12)]
    return waiting, running, b"no such job!"


def test_cancel_withdraws_every_waiting_job_of_a_batch(apis: ShardApis) -> None:
    waiting, running, unknown = mixed(apis)
    effects = apis.operations.waiting_jobs.cancel(jobs(*waiting, running, unknown))
    assert [effect.done for effect in effects] == [True] * 12 + [False] * 2
    assert all(apis.where(raw_id) == [] for raw_id in waiting)
    assert apis.where(running) == ["leases"]
    assert list(ConsistencyCheck(apis.shard).walk()) == []


def test_cancelled_jobs_keep_results_of_their_own(apis: ShardApis) -> None:
    kept = [apis.add(n, ttl=HOUR if n % 2 else None) for n in range(6)]
    assert all(effect.done for effect in apis.operations.waiting_jobs.cancel(jobs(*kept)))
    found = [apis.inspection.find(raw_id) for raw_id in kept]
    assert [row.state for row in found] == ["gone", "cancelled"] * 3
    assert [row.job.args for row in found if row.job] == [[1], [3], [5]]


def test_reschedule_gives_each_job_a_time_of_its_own(apis: ShardApis) -> None:
    waiting, running, unknown = mixed(apis)
    batch = [BatchJob(raw_id=each, due_us=START + n * HOUR) for n, each in enumerate([*waiting, running, unknown])]
    effects = apis.operations.waiting_jobs.reschedule(batch)
    assert [effect.due_us for effect in effects] == [*(START + n * HOUR for n in range(12)), None, None]
    assert apis.where(waiting[0]) == ["ready:q0"]
    assert [apis.scheduled(f"q{n % 3}")[waiting[n]] for n in range(1, 12)] == [START + n * HOUR for n in range(1, 12)]
    assert list(ConsistencyCheck(apis.shard).walk()) == []
    apis.clock.advance(DAY)
    apis.promote()
    assert {claim.raw_id for claim in apis.worker().take(64, "q0", "q1", "q2").claims} == set(waiting)


def test_move_takes_jobs_of_several_queues_to_one(apis: ShardApis) -> None:
    waiting, running, unknown = mixed(apis)
    effects = apis.operations.waiting_jobs.move(jobs(*waiting, running, unknown), "bulk")
    assert [effect.done for effect in effects] == [True] * 12 + [False] * 2
    assert {apis.where(raw_id)[0] for raw_id in waiting} == {"scheduled:bulk", "ready:bulk"}
    assert list(ConsistencyCheck(apis.shard).walk()) == []


def test_requeue_revives_what_it_can_and_says_why_not(apis: ShardApis) -> None:
    free, held, broken = apis.add_dead(queue="a"), apis.add_dead(queue="b", key="k"), apis.add_dead(queue="c")
    apis.add(key="k", delay=HOUR)
    again = letters(apis, apis.add_dead(queue="d"))[0]
    apis.client.hset(apis.keys("dead_bodies"), broken, b"\0" * 22 + b"?")
    batch = [*letters(apis, free, held, broken), BatchJob(raw_id=again.raw_id, died_us=again.died_us - 1)]
    effects = apis.operations.dead_letters.requeue(batch)
    assert [effect.done for effect in effects] == [True, False, False, False]
    assert [type(effect.error) for effect in effects] == [type(None), KeyHeld, BadBody, type(None)]
    assert apis.where(free) == ["ready:a"]
    assert apis.where(again.raw_id) == ["dead_letters"]


def test_discard_drops_the_dead_letters_of_a_batch(apis: ShardApis) -> None:
    died = [apis.add_dead() for _ in range(5)]
    batch = letters(apis, *died, b"no such job!")
    assert [effect.done for effect in apis.operations.dead_letters.discard(batch)] == [True] * 5 + [False]
    assert apis.operations.dead_letters.discard([]) == []
    assert apis.inspection.counts().dead == 0
    assert not apis.client.exists(apis.keys("dead_bytes"))


def test_a_job_that_is_named_twice_is_changed_once(apis: ShardApis) -> None:
    raw_id, dead = apis.add(delay=HOUR, key="k"), letters(apis, apis.add_dead())[0]
    assert [effect.done for effect in apis.operations.dead_letters.discard([dead, dead])] == [True, False]
    assert all(effect.done for effect in apis.operations.waiting_jobs.move(jobs(raw_id, raw_id), "other"))
    assert [effect.done for effect in apis.operations.waiting_jobs.cancel(jobs(raw_id, raw_id))] == [True, False]
    again = [letters(apis, apis.add_dead())[0]] * 2
    assert [effect.done for effect in apis.operations.dead_letters.requeue(again)] == [True, False]
    assert list(ConsistencyCheck(apis.shard).walk()) == []


def test_one_of_several_dead_letters_takes_their_key(apis: ShardApis) -> None:
    raw_ids = [apis.add_dead(key="k", queue=f"q{n}", delay=None) for n in range(3)]
    effects = apis.operations.dead_letters.requeue(letters(apis, *raw_ids))
    assert [effect.done for effect in effects] == [True, False, False]
    assert [type(effect.error) for effect in effects] == [type(None), KeyHeld, KeyHeld]
    assert [apis.where(raw_id) for raw_id in raw_ids] == [["ready:q0"], ["dead_letters"], ["dead_letters"]]
    assert apis.enqueue(apis.draft(key="k")).held == {0: raw_ids[0]}
    assert list(ConsistencyCheck(apis.shard).walk()) == []


def test_dead_letters_of_a_batch_wait_each_until_its_time(apis: ShardApis) -> None:
    raw_ids = [apis.add_dead(queue=f"q{n % 2}") for n in range(6)]
    batch = [
        BatchJob(raw_id=each.raw_id, died_us=each.died_us, delay_us=n // 2 * HOUR)
        for n, each in enumerate(letters(apis, *raw_ids))
    ]
    assert [effect.due_us for effect in apis.operations.dead_letters.requeue(batch)] == [
        START + n // 2 * HOUR for n in range(6)
    ]
    assert [apis.where(raw_id)[0] for raw_id in raw_ids[:2]] == ["ready:q0", "ready:q1"]
    assert [apis.scheduled(f"q{n % 2}")[raw_ids[n]] for n in range(2, 6)] == [
        START + n // 2 * HOUR for n in range(2, 6)
    ]
    assert apis.inspection.counts().dead == 0
    assert list(ConsistencyCheck(apis.shard).walk()) == []


def test_a_batch_of_any_queues_is_one_call(apis: ShardApis) -> None:
    waiting = [apis.add(queue=f"q{n}", delay=HOUR) for n in range(250)]
    apis.operations.waiting_jobs.cancel(jobs(apis.add(), apis.add()))
    apis.client.config_resetstat()
    assert all(effect.done for effect in apis.operations.waiting_jobs.cancel(jobs(*waiting)))
    # One reads the bodies, one changes the jobs.
    assert apis.client.info("commandstats")["cmdstat_evalsha"]["calls"] == 2


def test_large_bodies_take_several_calls(apis: ShardApis) -> None:
    waiting = [apis.add(LARGE_TEXT, delay=HOUR) for _ in range(60)]
    apis.operations.waiting_jobs.move(jobs(*waiting[:2]), "loads the scripts")
    apis.client.config_resetstat()
    assert all(effect.done for effect in apis.operations.waiting_jobs.move(jobs(*waiting), "bulk"))
    # Three read bodies, three change their jobs.
    assert apis.client.info("commandstats")["cmdstat_evalsha"]["calls"] == 6


def test_a_batch_of_too_many_jobs_is_refused(apis: ShardApis) -> None:
    with pytest.raises(ValueError, match="at most 250 jobs, got 251"):
        apis.operations.waiting_jobs.cancel(jobs(*[bytes(12)] * 251))


def test_a_key_of_another_type_leaves_the_whole_batch_as_it_was(apis: ShardApis) -> None:
    good, bad = apis.add(queue="a", delay=HOUR), apis.add(queue="b", delay=HOUR)
    apis.client.set(apis.keys.ready("b"), "x")
    with pytest.raises(Exception, match="WRONGTYPE"):
        apis.operations.waiting_jobs.reschedule([BatchJob(raw_id=good, delay_us=0), BatchJob(raw_id=bad, delay_us=0)])
    assert list(apis.scheduled("a")) == [good]
