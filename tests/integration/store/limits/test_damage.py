"""Records of limits that somebody edited manually: the check finds them, the repair corrects them, and all jobs run."""

from collections.abc import Callable

import pytest

from django_delayq.exceptions import ScriptFault
from django_delayq.job.job import LimitUse
from django_delayq.job.outcome import Action
from django_delayq.store.digests import limit_digest, queue_hash
from django_delayq.store.maintenance.consistency_check import ConsistencyCheck
from tests.shard_apis import HOUR, SECOND, ShardApis, settlement

ONE, OTHER = LimitUse("one", "a"), LimitUse("one", "b")
ID = limit_digest(*ONE)
PARKED, LET_IN, SLOT = b"\0" + ID, b"\1" + ID, b"\2" + ID
NOUNS = ("limit_jobs", "waiting_for", "claim_limits", "next_let_in", "limit_turns", "limit_times", "outside_slots")


def codes(apis: ShardApis, *, repair: bool = False) -> set[str]:
    """Return what the check finds."""
    return {found.code for found in ConsistencyCheck(apis.shard).walk(repair=repair)}


@pytest.fixture
def apis(apis: ShardApis) -> ShardApis:
    """Under one limit a job runs, and others are parked in two queues; under another one a job was let in."""
    for queue in ("default", "fair"):
        for tenant in ("a", "b"):
            apis.add(limits=[ONE], queue=queue, tenant=tenant)
    worker = apis.worker()
    assert len(worker.take(9, "default", "fair").claims) == 1
    for _ in range(2):
        apis.add(limits=[OTHER])
    (claim,) = worker.take(9).claims
    worker.settle(claim, Action.ACKNOWLEDGE)
    assert apis.let_in() == 1
    apis.operations.limits.take_slot(OTHER, lease=bytes(30), length_us=HOUR)
    apis.operations.limits.back_off(LimitUse("two"), SECOND)
    assert not codes(apis)
    return apis


def entries(apis: ShardApis, kind: bytes) -> list[bytes]:
    """Return the entries of `limit_jobs` of one kind."""
    return [entry for entry in apis.client.zrange(apis.keys("limit_jobs"), 0, -1) if entry.startswith(kind)]


def remove(apis: ShardApis, kind: bytes) -> object:
    return apis.client.zrem(apis.keys("limit_jobs"), *entries(apis, kind))


def put(noun: str, entry: bytes) -> Callable[[ShardApis], object]:
    return lambda apis: apis.client.zadd(apis.keys(noun), {entry: 0})


def put_field(noun: str, field: bytes, value: bytes) -> Callable[[ShardApis], object]:
    return lambda apis: apis.client.hset(apis.keys(noun), field, value)


def delete(*nouns: str) -> Callable[[ShardApis], object]:
    return lambda apis: apis.client.delete(*map(apis.keys, nouns))


def retype(noun: str) -> Callable[[ShardApis], object]:
    return lambda apis: (apis.client.delete(apis.keys(noun)), apis.client.set(apis.keys(noun), "edited"))


#: What somebody did, and the word of the check.
DAMAGES: dict[str, tuple[Callable[[ShardApis], object], str]] = {
    "no entries": (delete("limit_jobs"), "LIMIT_NOT_LISTED"),
    "no parked entries": (lambda apis: remove(apis, PARKED), "LIMIT_NOT_LISTED"),
    "no slots": (lambda apis: remove(apis, SLOT), "NO_SLOT"),
    "no limit is open": (delete("next_let_in"), "LIMIT_NOT_LISTED"),
    "nobody waits": (delete("waiting_for"), "MISPLACED"),
    "nothing of parked jobs": (delete("waiting_for", "next_let_in", "limit_jobs"), "MISPLACED"),
    "no claim has a slot": (delete("claim_limits"), "NO_RECORD"),
    "nothing of claims": (lambda apis: (delete("claim_limits")(apis), remove(apis, SLOT)), ""),
    "a job that is not parked waits": (put_field("waiting_for", bytes(12), ID), "MISSING"),
    "a job waits for no limit": (put_field("waiting_for", bytes(12), b"short"), "MALFORMED"),
    "a job that does not run has a slot": (put_field("claim_limits", bytes(12), ID + bytes(2)), "MISSING"),
    "a claim with half a slot": (put_field("claim_limits", bytes(12), ID), "MALFORMED"),
    "a parked job that is not there": (put("limit_jobs", PARKED + bytes(38) + b"default"), "MISSING"),
    "a let-in job that is not there": (put("limit_jobs", LET_IN + queue_hash("default") + bytes(24)), "MISSING"),
    "a slot of no lease": (put("limit_jobs", SLOT + b"x" * 30), "MISSING"),
    "an entry of no kind": (put("limit_jobs", b"\7" + ID), "MALFORMED"),
    "a short parked entry": (put("limit_jobs", PARKED), "MALFORMED"),
    "a parked entry without a rank": (put("limit_jobs", PARKED + queue_hash("default")), "MALFORMED"),
    "a short let-in entry": (put("limit_jobs", LET_IN + queue_hash("default")), "MALFORMED"),
    "a short slot": (put("limit_jobs", SLOT), "MALFORMED"),
    "a holder without a slot": (put("outside_slots", ID + bytes(30)), "MISSING"),
    "a short holder": (put("outside_slots", ID), "MALFORMED"),
    "a turn of a limit that nobody waits for": (put_field("limit_turns", b"x" * 12, bytes(14)), "MISSING"),
    "half a turn": (put_field("limit_turns", ID, b"half"), "MALFORMED"),
    "an open limit with another name": (put("next_let_in", b"short"), "MALFORMED"),
    "a time of no limit": (put("limit_times", b"short"), "MALFORMED"),
    "a rule of no limit": (put_field("limit_rules", b"short", bytes(16)), "MALFORMED"),
    "a short rule": (put_field("limit_rules", b"none", b"short"), "MALFORMED"),
    "a paused task of no name": (put_field("paused_tasks", b"short", b"1 ann"), "MALFORMED"),
    **{f"another type of {noun}": (retype(noun), "MISTYPED") for noun in NOUNS},
}
#: Until a repair, no dispatcher finds the jobs.
STUCK = {"no entries", "no parked entries", "no limit is open", "nobody waits", "nothing of parked jobs"}


def run_all(apis: ShardApis) -> list[bytes]:
    """End the running job as reclaimed, and run all jobs to their end; return their ids."""
    apis.operations.limits.give_back_slot(OTHER, lease=bytes(30))
    apis.expire_leases()
    worker, ran = apis.worker(), list[bytes]()
    for _ in range(12):
        apis.clock.advance(apis.config.dispatcher.sweep_us)
        apis.let_in()
        claims = worker.take(9, "default", "fair").claims
        ran += [claim.raw_id for claim in claims]
        worker.take(0, settle=[settlement(claim, Action.ACKNOWLEDGE) for claim in claims])
    return ran


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_found_and_mended(apis: ShardApis, damage: str) -> None:
    plant, word = DAMAGES[damage]
    plant(apis)
    assert word in codes(apis) or not word
    for _ in range(4):
        if not codes(apis, repair=True):
            break
    assert not codes(apis)
    assert len(run_all(apis)) == 5
    assert not codes(apis)
    for noun in ("limit_jobs", "waiting_for", "claim_limits", "outside_slots"):
        assert not apis.client.exists(apis.keys(noun))


@pytest.mark.parametrize("damage", [name for name in DAMAGES if name not in STUCK and "type" not in name])
def test_every_job_runs_in_spite_of_it(apis: ShardApis, damage: str) -> None:
    DAMAGES[damage][0](apis)
    assert len(run_all(apis)) == 5


@pytest.mark.parametrize("kept", ["claim", "slot"])
def test_a_repair_keeps_the_slots_of_running_jobs(apis: ShardApis, kept: str) -> None:
    if kept == "claim":
        remove(apis, SLOT)
    else:
        apis.client.delete(apis.keys("claim_limits"))
    codes(apis, repair=True)
    assert len(entries(apis, SLOT)) == 1
    apis.clock.advance(apis.config.dispatcher.sweep_us)
    apis.let_in()
    worker = apis.worker()
    assert all(ONE not in (claim.job.limits if claim.job else ()) for claim in worker.take(9, "default", "fair").claims)


@pytest.mark.parametrize("noun", ["waiting_for", "limit_jobs"])
def test_a_check_touches_no_job_that_was_moved_meanwhile(
    apis: ShardApis, noun: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw_id = next(iter(apis.parked()))
    check = ConsistencyCheck(apis.shard)
    bodies = check._read_bodies([raw_id])
    apis.operations.move(raw_id, "other")
    apis.worker().take(9, "other")
    assert raw_id in apis.parked("other")
    monkeypatch.setattr(check, "_read_bodies", lambda ids: bodies)
    (entry,) = [raw_id] if noun == "waiting_for" else [each for each in entries(apis, PARKED) if raw_id in each]
    assert check.audit_limits(noun, [entry], [raw_id], repair=True) == [b"OK"]
    assert not codes(apis)


@pytest.mark.parametrize("noun", ["limit_jobs", "waiting_for", "claim_limits", "next_let_in"])
def test_a_key_of_another_type_fails_before_anything_is_stored(apis: ShardApis, noun: str) -> None:
    apis.add(limits=[ONE])
    retype(noun)(apis)
    before = {key: apis.client.dump(key) for key in apis.client.keys("*")}
    with pytest.raises(ScriptFault, match="WRONGTYPE"):
        apis.worker().take(1)
    assert {key: apis.client.dump(key) for key in apis.client.keys("*")} == before
