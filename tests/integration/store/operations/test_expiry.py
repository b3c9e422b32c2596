"""Expiry of stored jobs: it follows a new due time, also in signed bodies, and a person's retry gets a new one."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from django_delayq.exceptions import BadBody
from django_delayq.job.body.codec import decode
from django_delayq.job.job import Expiry, Job
from django_delayq.job.outcome import Action
from django_delayq.job.unsent import encode_new
from django_delayq.store.operations.batch import BatchJob
from django_delayq.store.operations.spread import Spread
from tests.shard_apis import HOUR, SECOND, START, ShardApis

MINUTE = 60 * SECOND
SPAN, MOMENT = Expiry(moment_us=0, span_us=MINUTE), Expiry(moment_us=START + HOUR)


@pytest.fixture(params=[{}, {"SIGN": True}, {"ENCRYPT": True}, {"SIGN": True, "ENCRYPT": True}], ids=str)
def shard(request: Any, make_apis: Callable[..., ShardApis]) -> ShardApis:
    """The APIs of a shard that signs or encrypts bodies, or neither."""
    return make_apis(**request.param)


def add(apis: ShardApis, expiry: Expiry, *, key: str | None = None, delay: int | None = None) -> bytes:
    draft = apis.draft("a", key=key, delay=delay)
    job, body = encode_new(replace(draft.job, expiry=expiry), max_payload=1_000)
    apis.enqueue(replace(draft, job=job, body=body))
    return job.raw_id


def stored(apis: ShardApis, raw_id: bytes) -> Job:
    body = apis.client.hget(apis.keys("jobs"), raw_id)
    apis.store.signer.verify(raw_id, body)
    return decode(body, raw_id=raw_id, shard=0, cipher=apis.store.cipher)


def expires(apis: ShardApis, raw_id: bytes) -> int | None:
    expiry = stored(apis, raw_id).expiry
    return expiry and expiry.moment_us


@pytest.mark.parametrize("delay", [None, HOUR])
def test_a_span_begins_at_the_due_time(shard: ShardApis, delay: int | None) -> None:
    assert expires(shard, add(shard, SPAN, delay=delay)) == START + (delay or 0) + MINUTE
    assert expires(shard, add(shard, MOMENT, delay=delay)) == START + HOUR


@pytest.mark.parametrize("delay", [None, HOUR])
@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("time", [{"delay_us": 0}, {"delay_us": 5}, {"due_us": START + HOUR}, {"due_us": START - 1}])
def test_reschedule_moves_a_span_along(shard: ShardApis, delay: int | None, key: str | None, time: Any) -> None:
    raw_id = add(shard, SPAN, key=key, delay=delay)
    shard.clock.advance(7)
    due_us = shard.operations.reschedule(raw_id, **time)
    assert due_us is not None and expires(shard, raw_id) == due_us + MINUTE
    # The job is whole: a worker claims it under its member, and its key goes with it.
    shard.clock.advance(2 * HOUR)
    shard.promote()
    worker = shard.worker()
    (claim,) = worker.take().claims
    assert claim.job is not None and (claim.job.key, claim.job.member) == (key, claim.lease[:14])
    worker.settle(claim, Action.ACKNOWLEDGE)
    assert shard.traces(raw_id) == []


def test_reschedule_keeps_a_moment(shard: ShardApis) -> None:
    raw_id = add(shard, MOMENT)
    shard.operations.reschedule(raw_id, delay_us=2 * HOUR)
    assert expires(shard, raw_id) == START + HOUR


def test_a_move_keeps_the_expiry(shard: ShardApis) -> None:
    raw_id = add(shard, SPAN)
    shard.clock.advance(5)
    assert shard.operations.move(raw_id, "mail")
    assert (stored(shard, raw_id).queue, expires(shard, raw_id)) == ("mail", START + MINUTE)


@pytest.mark.parametrize("change", [None, lambda job: replace(job, args=["b"])], ids=["same", "changed"])
@pytest.mark.parametrize(("expiry", "left"), [(SPAN, True), (MOMENT, False)])
def test_a_retried_dead_letter_is_not_expired_at_once(
    shard: ShardApis, change: Any, expiry: Expiry, left: bool
) -> None:
    raw_id = add(shard, expiry)
    shard.kill(raw_id)
    shard.clock.advance(2 * HOUR)
    due_us = shard.operations.requeue(raw_id, died_us=START, delay_us=SECOND, change=change)
    assert due_us == shard.clock.now_us + SECOND
    assert expires(shard, raw_id) == (due_us + MINUTE if left else None)
    assert stored(shard, raw_id).args == ["a" if change is None else "b"]


@pytest.mark.parametrize("change", [None, lambda job: replace(job, args=["b"])], ids=["same", "changed"])
def test_a_span_counts_from_the_place_in_a_spread(shard: ShardApis, change: Any) -> None:
    dead = [add(shard, SPAN) for _ in range(4)]
    for raw_id in dead:
        shard.kill(raw_id)
    jobs = [BatchJob(raw_id=raw_id, died_us=START) for raw_id in dead]
    shard.clock.advance(2 * HOUR)
    # The second call continues a spread whose time began earlier, and that has fewer places than it counts.
    for part, left in ((jobs[:2], 4), (jobs[2:], 3)):
        effects = shard.operations.dead_letters.requeue(
            part, spread=Spread(name=b"s", length_us=HOUR, left=left), change=change
        )
        for job, effect in zip(part, effects, strict=True):
            assert effect.due_us is not None and expires(shard, job.raw_id) == effect.due_us + MINUTE
        shard.clock.advance(SECOND)


def test_a_forged_body_is_rescheduled_and_retried_as_it_is(make_apis: Callable[..., ShardApis]) -> None:
    apis = make_apis(SIGN=True)
    waits, dies = add(apis, SPAN), add(apis, SPAN)
    for raw_id in (waits, dies):
        forged = apis.client.hget(apis.keys("jobs"), raw_id)[:-1] + b"\0"
        apis.client.hset(apis.keys("jobs"), raw_id, forged)
    apis.kill(dies)
    assert apis.operations.reschedule(waits, delay_us=SECOND) == START + SECOND
    assert apis.operations.requeue(dies, died_us=START) == START
    assert [claim.fault is not None for claim in apis.worker().take(2).claims] == [True]


def test_one_damaged_expiry_stops_no_other_job(apis: ShardApis) -> None:
    waiting = [add(apis, SPAN, delay=HOUR) for _ in range(3)]
    dead = [add(apis, SPAN) for _ in range(3)]
    for raw_id in dead:
        apis.kill(raw_id)
    for noun, damaged in (("jobs", waiting[1]), ("dead_bodies", dead[1])):
        stored = apis.client.hget(apis.keys(noun), damaged)
        apis.client.hset(apis.keys(noun), damaged, stored[:-3])
    moved = apis.operations.waiting_jobs.reschedule([BatchJob(raw_id=raw_id, delay_us=2 * HOUR) for raw_id in waiting])
    died = [apis.inspection.dead_letter(raw_id) for raw_id in dead]
    letters = [BatchJob(raw_id=each.raw_id, died_us=each.moment_us) for each in died if each]
    for effects in (moved, apis.operations.dead_letters.requeue(letters)):
        assert [effect.done for effect in effects] == [True, False, True]
        assert isinstance(effects[1].error, BadBody)
    assert list(apis.scheduled().values()) == [START + HOUR, START + 2 * HOUR, START + 2 * HOUR]
    with pytest.raises(BadBody):
        apis.operations.reschedule(waiting[1], delay_us=HOUR)
