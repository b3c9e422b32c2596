"""Requeue: a dead letter waits again, as itself."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from django_delayq.exceptions import KeyHeld, PayloadTooLarge
from django_delayq.job.attempts import AttemptHistory
from django_delayq.job.job import Flag, Job
from django_delayq.job.outcome import Action
from tests.shard_apis import DAY, HOUR, LARGE_TEXT, SECOND, START, ShardApis, uncounted


def test_dead_letter_is_ready_again_with_its_body_and_priority(apis: ShardApis) -> None:
    raw_id = apis.add("argument", priority=-7)
    body = apis.client.hget(apis.keys("jobs"), raw_id)
    apis.kill(raw_id)
    apis.clock.advance(HOUR)
    assert apis.operations.requeue(raw_id, died_us=START) == START + HOUR
    assert apis.where(raw_id) == ["ready:default"]
    assert apis.client.hget(apis.keys("jobs"), raw_id) == body
    assert not apis.client.exists(apis.keys("dead_bodies"))


@pytest.mark.parametrize("delay", [1, SECOND, 365 * DAY])
def test_dead_letter_can_be_put_off_to_the_microsecond(apis: ShardApis, delay: int) -> None:
    raw_id = apis.add_dead()
    assert apis.operations.requeue(raw_id, died_us=START, delay_us=delay) == START + delay
    assert apis.scheduled() == {raw_id: START + delay}


def test_attempts_are_counted_from_0_and_the_history_is_kept(apis: ShardApis) -> None:
    raw_id = apis.add()
    worker = apis.worker()
    worker.settle(worker.take().claims[0], Action.RETRY, error="first")
    apis.promote()
    worker.settle(worker.take().claims[0], Action.DEAD_LETTER, error="second")
    apis.operations.requeue(raw_id, died_us=START)
    (claim,) = worker.take().claims
    assert claim.attempt == 1
    assert not claim.attempts.crash_suspected
    assert [entry["error"] for entry in claim.attempts.history] == ["first", "second"]


@pytest.mark.parametrize("encrypt", [False, True])
def test_snoozes_and_interruptions_are_counted_from_0(make_apis: Callable[..., ShardApis], encrypt: bool) -> None:
    apis = make_apis(ENCRYPT=encrypt)
    raw_id = apis.add()
    worker = apis.worker()
    (claim,) = worker.take().claims
    worker.settle(claim, Action.RETRY, error="first")
    for change in (AttemptHistory.snoozed, AttemptHistory.cut_short):
        apis.promote()
        (claim,) = worker.take().claims
        worker.take(0, settle=[uncounted(claim, change(claim.attempts))])
    apis.promote()
    (claim,) = worker.take().claims
    assert (claim.attempts.snoozes, claim.attempts.interruptions, claim.attempts.recovered) == (1, 1, True)
    worker.settle(claim, Action.DEAD_LETTER, error="second")
    apis.operations.requeue(raw_id, died_us=START)
    (claim,) = worker.take().claims
    assert claim.attempts == AttemptHistory(history=claim.attempts.history)
    assert [entry["error"] for entry in claim.attempts.history] == ["first", "second"]


def test_requeued_job_ends_like_any_other(apis: ShardApis) -> None:
    raw_id = apis.add_dead(key="k")
    apis.operations.requeue(raw_id, died_us=START)
    worker = apis.worker()
    worker.settle(worker.take().claims[0], Action.ACKNOWLEDGE)
    assert apis.traces(raw_id) == []


def test_requeue_needs_the_current_time_of_death(apis: ShardApis) -> None:
    raw_id = apis.add_dead()
    assert apis.operations.requeue(raw_id, died_us=START - 1) is None
    assert apis.operations.requeue(raw_id, died_us=START + 1) is None
    assert apis.where(raw_id) == ["dead_letters"]


def test_requeue_from_a_page_of_an_earlier_death_does_nothing(apis: ShardApis) -> None:
    raw_id = apis.add_dead()
    apis.operations.requeue(raw_id, died_us=START)
    apis.clock.advance(SECOND)
    apis.kill(raw_id)
    assert apis.operations.requeue(raw_id, died_us=START) is None
    assert apis.operations.requeue(raw_id, died_us=START + SECOND) == START + SECOND


def test_second_requeue_of_one_death_does_nothing(apis: ShardApis) -> None:
    raw_id = apis.add_dead()
    assert apis.operations.requeue(raw_id, died_us=START) == START
    assert apis.operations.requeue(raw_id, died_us=START) is None
    assert apis.where(raw_id) == ["ready:default"]


def test_unknown_and_living_jobs_are_not_requeued(apis: ShardApis) -> None:
    raw_id = apis.add()
    assert apis.operations.requeue(raw_id, died_us=START) is None
    assert apis.operations.requeue(b"\x01" * 12, died_us=START) is None
    assert apis.where(raw_id) == ["ready:default"]


def test_requeue_takes_the_key_again(apis: ShardApis) -> None:
    raw_id = apis.add_dead(key="k")
    apis.operations.requeue(raw_id, died_us=START)
    assert apis.enqueue(apis.draft(key="k")).held == {0: raw_id}


def test_requeue_is_refused_while_the_key_is_another_jobs(apis: ShardApis) -> None:
    raw_id = apis.add_dead(key="k")
    holder = apis.add(key="k")
    with pytest.raises(KeyHeld):
        apis.operations.requeue(raw_id, died_us=START)
    assert apis.where(raw_id) == ["dead_letters"]
    apis.operations.cancel(holder)
    assert apis.operations.requeue(raw_id, died_us=START) == START


def test_requeue_notifies(apis: ShardApis) -> None:
    first, second = apis.add_dead(), apis.add_dead()
    apis.promote()
    notify_keys = [apis.keys.notify("default"), apis.keys("notify_dispatcher")]
    apis.notifications(*notify_keys)
    apis.operations.requeue(first, died_us=START)
    assert apis.notifications(*notify_keys) == [1, 0]
    apis.operations.requeue(second, died_us=START, delay_us=SECOND)
    assert apis.notifications(*notify_keys) == [0, 1]


def test_full_memory_does_not_lose_the_dead_letter(own_apis: ShardApis) -> None:
    raw_id = own_apis.add_dead(key="k")
    own_apis.fill_memory()
    assert own_apis.operations.requeue(raw_id, died_us=START) == START
    assert own_apis.where(raw_id) == ["ready:default"]


def test_flushed_scripts_are_loaded_again(apis: ShardApis) -> None:
    first, second = apis.add_dead(), apis.add_dead()
    apis.operations.requeue(first, died_us=START)
    apis.client.script_flush()
    assert apis.operations.requeue(second, died_us=START) == START


def with_args(*args: Any) -> Callable[[Job], Job]:
    """Give a job these arguments."""
    return lambda job: replace(job, args=list(args))


@pytest.mark.parametrize("before", ["small", LARGE_TEXT], ids=["small", "large"])
@pytest.mark.parametrize("after", ["other", LARGE_TEXT], ids=["to-small", "to-large"])
@pytest.mark.parametrize("sign", [True, False], ids=["signed", "unsigned"])
def test_the_arguments_can_be_changed_and_all_else_stays(
    make_apis: Callable[..., ShardApis], before: str, after: str, sign: bool
) -> None:
    apis = make_apis(SIGN=sign)
    raw_id = apis.add_dead(priority=-7, key="k") if before == "small" else None
    if raw_id is None:
        raw_id = apis.add(before, priority=-7, key="k")
        apis.kill(raw_id)
    assert apis.operations.requeue(raw_id, died_us=START, change=with_args(after)) == START
    (claim,) = apis.worker().take(1).claims
    assert claim.job is not None, claim.fault
    assert (claim.raw_id, claim.job.args, claim.job.priority, claim.job.key) == (raw_id, [after], -7, "k")
    assert bool(claim.job.flags & Flag.LARGE) == (after == LARGE_TEXT)
    assert claim.job.member == claim.lease[:14]
    assert len(claim.attempts.history) == 1
    apis.worker().settle(claim, Action.ACKNOWLEDGE)
    assert apis.traces(raw_id) == []


def test_arguments_that_changed_meanwhile_are_not_overwritten(apis: ShardApis) -> None:
    raw_id = apis.add_dead()

    def late(job: Job) -> Job:
        assert apis.operations.requeue(raw_id, died_us=START, change=with_args("first"))
        apis.kill(raw_id)
        return replace(job, args=["second"])

    assert apis.operations.requeue(raw_id, died_us=START, change=late) is None
    job = apis.inspection.find(raw_id).job
    assert job is not None
    assert job.args == ["first"]
    assert apis.where(raw_id) == ["dead_letters"]


def test_arguments_that_are_too_large_leave_the_dead_letter_as_it_was(apis: ShardApis) -> None:
    raw_id = apis.add_dead()
    before = apis.client.hgetall(apis.keys("dead_bodies"))
    with pytest.raises(PayloadTooLarge):
        apis.operations.requeue(raw_id, died_us=START, change=with_args("x" * 300_000))
    assert apis.client.hgetall(apis.keys("dead_bodies")) == before
