"""Consistency check: manual damage is found, reported with one word and repaired; then nothing is left to find."""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from django_delayq.clock import ServerClock
from django_delayq.job.outcome import Action
from django_delayq.store.maintenance.consistency_check import ConsistencyCheck
from tests.exercise_all_apis import exercise_all_apis
from tests.shard_apis import DAY, HOUR, ShardApis, settlement

Jobs = dict[str, bytes]


@dataclass(frozen=True)
class Damage:
    """A manual edit, the code that the check reports, and the place of the job after the repair."""

    name: str
    do: Callable[[ShardApis, Jobs], Any]
    words: set[str]
    job: str = ""
    then: tuple[str, ...] = ()


def jobs_everywhere(apis: ShardApis) -> Jobs:
    """Put a job with a key into each place, one that was tried before, and one without a key."""
    jobs = {"scheduled": apis.add(key="s", delay=DAY), "claimed": apis.add(key="c", queue="claimed")}
    worker = apis.worker(b"worker 1")
    assert worker.take(1, "claimed", description="host:1").claims
    jobs["dead"] = apis.add_dead(key="d", queue="dead")
    jobs["tried"] = apis.add(queue="tried")
    worker.settle(worker.take(1, "tried").claims[0], Action.RETRY, delay=HOUR)
    jobs["ready"] = apis.add(key="r")
    jobs["plain"] = apis.add(queue="plain")
    return jobs


def check_of(apis: ShardApis) -> ConsistencyCheck:
    return ConsistencyCheck(apis.shard)


def words(apis: ShardApis, *, repair: bool = False) -> list[str]:
    return [finding.code for finding in check_of(apis).walk(repair=repair)]


def dumped(apis: ShardApis) -> dict[bytes, Any]:
    """Return every key and its content, in an order that Redis does not change by itself."""
    client = apis.client
    read = {b"set": client.smembers, b"list": lambda key: client.lrange(key, 0, -1), b"string": client.get}
    read[b"stream"] = client.xrange
    read |= {b"hash": client.hgetall, b"zset": lambda key: client.zrange(key, 0, -1, withscores=True)}
    return {key: read[client.type(key)](key) for key in client.scan_iter()}


def member(apis: ShardApis, raw_id: bytes) -> bytes:
    body = apis.client.hget(apis.keys("jobs"), raw_id)
    return bytes(raw_id + body[1:3])


def twice(apis: ShardApis, raw_id: bytes, place: str, score: float) -> None:
    apis.client.zadd(place, {member(apis, raw_id): score})


def other_member(apis: ShardApis, raw_id: bytes) -> None:
    name = apis.keys.ready("plain")
    [(entry, rank)] = apis.client.zrange(name, 0, -1, withscores=True)
    apis.client.zrem(name, entry)
    apis.client.zadd(name, {raw_id + b"\x00\x00": rank})


def other_priority(apis: ShardApis, raw_id: bytes) -> None:
    body = apis.client.hget(apis.keys("jobs"), raw_id)
    apis.client.hset(apis.keys("jobs"), raw_id, body[:1] + bytes((body[1] ^ 1,)) + body[2:])


def second_lease(apis: ShardApis, raw_id: bytes) -> None:
    apis.client.zadd(apis.keys("leases"), {member(apis, raw_id) + bytes(16): apis.clock.now_us + HOUR})


DAMAGES = [
    Damage(
        "a waiting job's entry deleted",
        lambda d, j: d.client.delete(d.keys.scheduled("default")),
        {"ORPHANED"},
        "scheduled",
        ("ready:default",),
    ),
    Damage(
        "a ready set deleted",
        lambda d, j: d.client.delete(d.keys.ready("plain")),
        {"ORPHANED"},
        "plain",
        ("ready:plain",),
    ),
    Damage("all leases deleted", lambda d, j: d.client.delete(d.keys("leases")), {"NO_LEASE"}, "claimed", ("leases",)),
    Damage(
        "running deleted", lambda d, j: d.client.delete(d.keys("claim_records")), {"NO_RECORD"}, "claimed", ("leases",)
    ),
    Damage(
        "leases and running deleted",
        lambda d, j: d.client.delete(d.keys("leases"), d.keys("claim_records")),
        {"ORPHANED"},
        "claimed",
        ("ready:claimed",),
    ),
    Damage(
        "a second lease of one job", lambda d, j: second_lease(d, j["claimed"]), {"DUPLICATE"}, "claimed", ("leases",)
    ),
    Damage(
        "a body deleted",
        lambda d, j: d.client.hdel(d.keys("jobs"), j["scheduled"]),
        {"MISSING"},
        "scheduled",
        (),
    ),
    Damage(
        "a claimed job's body deleted",
        lambda d, j: d.client.hdel(d.keys("jobs"), j["claimed"]),
        {"MISSING"},
        "claimed",
    ),
    Damage("all bodies deleted", lambda d, j: d.client.delete(d.keys("jobs")), {"MISSING"}, "plain"),
    Damage(
        "ready and scheduled",
        lambda d, j: twice(d, j["ready"], d.keys.scheduled("default"), d.clock.now_us + DAY),
        {"DUPLICATE"},
        "ready",
        ("ready:default",),
    ),
    Damage(
        "claimed and ready",
        lambda d, j: twice(d, j["claimed"], d.keys.ready("claimed"), 5),
        {"DUPLICATE"},
        "claimed",
        ("leases",),
    ),
    Damage(
        "dead and waiting",
        lambda d, j: d.client.zadd(d.keys.ready("default"), {j["dead"] + b"\x64\x01": 5}),
        {"DUPLICATE"},
        "dead",
        ("dead_letters",),
    ),
    Damage(
        "dead with a living body",
        lambda d, j: d.client.hset(d.keys("jobs"), j["dead"], d.client.hget(d.keys("jobs"), j["plain"])),
        {"DUPLICATE"},
        "dead",
        ("dead_letters",),
    ),
    Damage(
        "scheduled in another queue",
        lambda d, j: (
            d.client.rename(d.keys.scheduled("default"), d.keys.scheduled("elsewhere")),
            d.client.zadd(d.keys("queues"), {"elsewhere": 1}),
        ),
        {"MISPLACED", "ORPHANED"},
        "scheduled",
        ("scheduled:default",),
    ),
    Damage(
        "ready under another priority",
        lambda d, j: other_member(d, j["plain"]),
        {"MISPLACED", "ORPHANED"},
        "plain",
        ("ready:plain",),
    ),
    Damage(
        "entries of other lengths",
        lambda d, j: (
            d.client.zadd(d.keys.ready("default"), {b"x": 1}),
            d.client.zadd(d.keys("leases"), {b"y" * 40: 1}),
            d.client.zadd(d.keys("dead_letters"), {b"z": 1}),
            d.client.hset(d.keys("unique_keys"), "k", b"v"),
            d.client.hset(d.keys("jobs"), "short", b"v"),
        ),
        {"MALFORMED"},
    ),
    Damage(
        "a queue's name forgotten",
        lambda d, j: d.client.zrem(d.keys("queues"), "plain"),
        {"QUEUE_NOT_LISTED"},
        "plain",
        ("ready:plain",),
    ),
    Damage(
        "the first due times forgotten",
        lambda d, j: d.client.delete(d.keys("next_due")),
        {"QUEUE_NOT_LISTED"},
        "scheduled",
        ("scheduled:default",),
    ),
    Damage(
        "a first due time put off",
        lambda d, j: d.client.zadd(d.keys("next_due"), {"default": 10**16}),
        {"QUEUE_NOT_LISTED"},
        "scheduled",
        ("scheduled:default",),
    ),
    Damage(
        "all queues forgotten",
        lambda d, j: d.client.delete(d.keys("queues")),
        {"QUEUE_NOT_LISTED"},
        "ready",
        ("ready:default",),
    ),
    Damage(
        "a key of nobody's",
        lambda d, j: d.client.hset(d.keys("unique_keys"), bytes(16), j["plain"] + b"\x64\x01"),
        {"MISSING"},
        "plain",
        ("ready:plain",),
    ),
    Damage(
        "a key let go",
        lambda d, j: d.client.delete(d.keys("unique_keys")),
        {"KEY_NOT_HELD"},
        "ready",
        ("ready:default",),
    ),
    Damage(
        "records of jobs that are gone",
        lambda d, j: [
            d.client.hset(d.keys(noun), b"i" * 12, b"r" * 33) for noun in ("attempts", "job_extras", "claim_records")
        ],
        {"MISSING"},
    ),
    Damage(
        "an unreadable body in no place",
        lambda d, j: d.client.hset(d.keys("jobs"), b"i" * 12, b"\xff"),
        {"UNREADABLE"},
    ),
    Damage(
        "a dead letter's entry deleted",
        lambda d, j: d.client.delete(d.keys("dead_letters")),
        {"ORPHANED"},
        "dead",
        ("dead_letters",),
    ),
    Damage("a dead letter's body deleted", lambda d, j: d.client.delete(d.keys("dead_bodies")), {"MISSING"}, "dead"),
    Damage(
        "keys of another type",
        lambda d, j: [
            (d.client.delete(key), d.client.set(key, "x")) for key in (d.keys("leases"), d.keys.notify("plain"))
        ],
        {"MISTYPED"},
        "plain",
        ("ready:plain",),
    ),
    Damage(
        "queues of another type",
        lambda d, j: (d.client.delete(d.keys("queues")), d.client.set(d.keys("queues"), "x")),
        {"MISTYPED"},
        "plain",
        ("ready:plain",),
    ),
    Damage(
        "a claimed job's priority changed in its body",
        lambda d, j: other_priority(d, j["claimed"]),
        {"MISPLACED"},
        "claimed",
        ("leases",),
    ),
    Damage(
        "a dead letter's record of a job that waits",
        lambda d, j: d.client.hset(d.keys("dead_bodies"), j["plain"], bytes(22)),
        {"MISSING"},
        "plain",
        ("ready:plain",),
    ),
    Damage(
        "what lets a key go deleted",
        lambda d, j: d.client.delete(d.keys("job_extras")),
        {"KEY_NOT_HELD"},
        "ready",
        ("ready:default",),
    ),
    Damage(
        "a key's holder damaged",
        lambda d, j: [
            d.client.hset(d.keys("unique_keys"), digest, b"x") for digest in d.client.hkeys(d.keys("unique_keys"))
        ],
        {"MALFORMED"},
        "ready",
        ("ready:default",),
    ),
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
def test_damage_is_reported_and_repaired(damage: Damage, apis: ShardApis) -> None:
    jobs = jobs_everywhere(apis)
    assert words(apis) == []
    damage.do(apis, jobs)
    before = dumped(apis)
    assert set(words(apis)) >= damage.words
    assert dumped(apis) == before, "looking changes nothing"
    assert words(apis, repair=True)
    # One repair can uncover the next inconsistency.
    words(apis, repair=True)
    assert words(apis) == []
    assert not damage.job or apis.where(jobs[damage.job]) == list(damage.then)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
def test_a_repaired_job_runs_to_its_end_and_leaves_no_trace(damage: Damage, apis: ShardApis) -> None:
    damage.do(apis, jobs_everywhere(apis))
    assert words(apis, repair=True)
    apis.clock.advance(2 * DAY)
    apis.expire_leases()
    worker = apis.worker()
    claims = worker.take(64, *apis.shard.read_queues()).claims
    # The job that was tried before waits: its last attempt crashed.
    claims += worker.take(64, *apis.shard.read_queues()).claims
    worker.take(0, settle=[settlement(claim, Action.ACKNOWLEDGE) for claim in claims])
    left = {
        noun
        for noun in ("jobs", "leases", "claim_records", "attempts", "job_extras", "unique_keys")
        if apis.client.exists(apis.keys(noun))
    }
    assert not left


def test_a_running_job_whose_body_changed_is_never_leased_twice(apis: ShardApis) -> None:
    raw_id = apis.add()
    worker = apis.worker()
    (claim,) = worker.take().claims
    other_priority(apis, raw_id)
    words(apis, repair=True)
    words(apis, repair=True)
    assert apis.client.zcard(apis.keys("leases")) == 1
    assert worker.api.heartbeat([claim.lease]).lost == {claim.lease}
    assert apis.promote().expired_leases == []


def test_a_key_is_still_unique_after_a_repair(apis: ShardApis) -> None:
    raw_id = apis.add(key="k", delay=HOUR)
    for lost in ("job_extras", "unique_keys"):
        apis.client.delete(apis.keys(lost))
        words(apis, repair=True)
        receipt = apis.enqueue(apis.draft(key="k"))
        assert receipt.held == {0: raw_id}
    assert apis.operations.cancel(raw_id)
    assert not apis.client.exists(apis.keys("unique_keys"), apis.keys("job_extras"))


def test_a_scheduled_job_keeps_its_due_time_when_it_is_put_back(apis: ShardApis) -> None:
    raw_id = apis.add(delay=DAY)
    due = apis.scheduled()[raw_id]
    apis.client.rename(apis.keys.scheduled("default"), apis.keys.scheduled("other"))
    apis.client.zadd(apis.keys("queues"), {"other": 1})
    assert words(apis, repair=True) == ["MISPLACED"]
    assert apis.scheduled() == {raw_id: due}


def test_a_job_that_was_running_is_judged_by_the_dispatcher(apis: ShardApis) -> None:
    raw_id = apis.add()
    (claim,) = apis.worker().take().claims
    apis.client.delete(apis.keys("leases"))
    assert words(apis, repair=True) == ["NO_LEASE"]
    assert apis.notifications(apis.keys("notify_dispatcher")) == [1]
    assert apis.promote().expired_leases == [claim.lease]
    assert apis.where(raw_id) == ["leases"]


def test_a_waiting_unreadable_body_is_left_to_the_worker_that_claims_it(apis: ShardApis) -> None:
    raw_id = apis.add()
    apis.client.hset(apis.keys("jobs"), raw_id, b"\xff")
    assert words(apis, repair=True) == []
    assert apis.worker().take().claims[0].fault


def test_an_unreadable_body_in_no_place_becomes_a_dead_letter(apis: ShardApis) -> None:
    apis.client.hset(apis.keys("jobs"), b"i" * 12, b"\xff")
    assert words(apis, repair=True) == ["UNREADABLE"]
    letter = apis.inspection.dead_letter(b"i" * 12)
    assert letter is not None
    assert letter.attempts.last_error == "The stored body cannot be read."


def test_every_batch_of_many_is_checked(apis: ShardApis) -> None:
    for at in range(0, 2_000, 500):
        apis.enqueue(*(apis.draft(queue=f"q{n % 3}", delay=HOUR * (n % 2)) for n in range(at, at + 500)))
    removed = apis.client.zpopmin(apis.keys.ready("q0"), 200) + apis.client.zpopmax(apis.keys.scheduled("q1"), 100)
    assert words(apis) == ["ORPHANED"] * len(removed)
    assert words(apis, repair=True) == ["ORPHANED"] * len(removed)
    assert words(apis) == []
    assert len({raw_id for raw_id, _ in check_of(apis).bodies()}) == 2_000


def test_nothing_is_found_or_changed_if_only_scripts_wrote(apis: ShardApis) -> None:
    exercise_all_apis(apis)
    before = dumped(apis)
    assert words(apis, repair=True) == []
    assert dumped(apis) == before


def test_a_check_of_a_running_system_finds_nothing(make_apis: Callable[..., ShardApis]) -> None:
    """Jobs move through every place while the check repairs what it finds: it must find nothing."""
    clock = ServerClock()
    watched = make_apis(clock=clock)
    walks = found = 0

    def work(seed: int) -> None:
        apis, rng = make_apis(clock=clock), random.Random(seed)
        worker, queues = apis.worker(), (f"q{seed}", f"q{seed} b")
        for turn in range(2_000):
            if turn >= 60 and walks >= 3:
                break
            drafts = [apis.draft(queue=queues[0], key=f"{seed} {turn} {n}" if n % 3 else None) for n in range(20)]
            apis.enqueue(
                *(d.rescheduled(delay_us=rng.randrange(2_000), due_us=None, called_at=0.0) for d in drafts[:10])
            )
            apis.enqueue(*drafts[10:])
            apis.operations.move(drafts[rng.randrange(20)].job.raw_id, queues[1])
            apis.operations.cancel(drafts[rng.randrange(20)].job.raw_id)
            apis.promote(*queues)
            claims = worker.take(15, *queues).claims
            worker.take(0, settle=[settlement(claim, rng.choice(list(Action))) for claim in claims])

    with ThreadPoolExecutor() as threads:
        working = [threads.submit(work, seed) for seed in range(2)]
        while not all(work.done() for work in working):
            found += len(list(check_of(watched).walk(repair=True)))
            walks += 1
    for ended in working:
        ended.result()
    assert found == 0
    assert walks >= 3
    assert min(watched.inspection.counts().dead, len(list(check_of(watched).bodies()))) > 10
