"""Undo of a requeue: a job that has not begun since is the dead letter again that it was."""

from collections.abc import Callable
from typing import Any

import pytest

from django_delayq.job.outcome import Action
from django_delayq.job.security.attempts_record import read_attempts
from django_delayq.store.records import DeadLetterRecord
from django_delayq.store.shard import Shard
from tests.shard_apis import HOUR, SECOND, START, ShardApis, uncounted
from tests.stateful import invariants, redis_state


def die(apis: ShardApis, **options: Any) -> bytes:
    """Return the id of a dead letter with two attempts, of which the last one died at START."""
    raw_id, worker = apis.add("argument", **options), apis.worker()
    queue = options.get("queue", "default")
    worker.settle(worker.take(1, queue).claims[0], Action.RETRY, error="first")
    apis.promote()
    worker.settle(worker.take(1, queue).claims[0], Action.DEAD_LETTER, error="second")
    return raw_id


def contents(apis: ShardApis) -> dict[str, Any]:
    """Return what Redis holds of dead letters and their groups."""
    names = ("dead_letters", "dead_bodies", "dead_bytes", "error_groups", "groups_of_dead", "dead_by_group")
    found = redis_state.read(apis.client, apis.keys)
    return {name: found.get(apis.keys(name)) for name in names}


@pytest.mark.parametrize("encrypt", [False, True])
@pytest.mark.parametrize("delay", [0, HOUR])
def test_the_dead_letter_is_as_it_was(make_apis: Callable[..., ShardApis], delay: int, encrypt: bool) -> None:
    apis = make_apis(ENCRYPT=encrypt)
    raw_id = die(apis, key="k", tenant="acme")
    before, letter = contents(apis), apis.inspection.dead_letter(raw_id)
    apis.clock.advance(HOUR)
    left_us = apis.operations.requeue(raw_id, died_us=START, delay_us=delay)
    assert left_us is not None
    assert apis.operations.undo_requeue(raw_id, died_us=START, left_due_us=left_us)
    assert apis.where(raw_id) == ["dead_letters"]
    after, again = contents(apis), apis.inspection.dead_letter(raw_id)
    assert letter is not None and again is not None
    assert (again.moment_us, again.attempts.ended, again.attempts.history) == (START, 2, letter.attempts.history)
    if not encrypt:
        # Encrypted records differ at each write.
        assert after == before
    # Its key is free, and its tenant has no job.
    assert not apis.client.exists(apis.keys("unique_keys"), apis.keys("tenant_jobs"), apis.keys("job_extras"))


def test_it_is_requeued_again(apis: ShardApis) -> None:
    raw_id = die(apis)
    for _ in range(3):
        left_us = apis.operations.requeue(raw_id, died_us=START)
        assert apis.operations.undo_requeue(raw_id, died_us=START, left_due_us=left_us)
    assert apis.operations.requeue(raw_id, died_us=START) is not None
    (claim,) = apis.worker().take().claims
    assert (claim.attempt, [entry["error"] for entry in claim.attempts.history]) == (1, ["first", "second"])


def test_no_more_attempts_count_than_the_job_may_have(apis: ShardApis) -> None:
    raw_id, most = apis.add(), apis.draft().job.retry.max_attempts
    assert most is not None
    for deaths in range(most + 1):
        died_us = START + deaths * SECOND
        apis.kill(raw_id)
        left_us = apis.operations.requeue(raw_id, died_us=died_us)
        apis.clock.advance(SECOND)
    assert apis.operations.undo_requeue(raw_id, died_us=died_us, left_due_us=left_us)
    letter = apis.inspection.dead_letter(raw_id)
    assert letter is not None
    assert (letter.attempts.ended, len(letter.attempts.history)) == (most, most + 1)


def test_a_job_that_has_begun_is_left_alone(apis: ShardApis) -> None:
    raw_id, worker = die(apis), apis.worker()
    left_us = apis.operations.requeue(raw_id, died_us=START)
    (claim,) = worker.take().claims
    assert not apis.operations.undo_requeue(raw_id, died_us=START, left_due_us=left_us)
    # It failed, and waits for its next attempt.
    worker.settle(claim, Action.RETRY, error="third")
    assert not apis.operations.undo_requeue(raw_id, died_us=START, left_due_us=left_us)
    apis.promote()
    (claim,) = worker.take().claims
    worker.settle(claim, Action.ACKNOWLEDGE)
    assert not apis.operations.undo_requeue(raw_id, died_us=START, left_due_us=left_us)
    assert apis.traces(raw_id) == []


def test_a_job_that_was_snoozed_has_begun(apis: ShardApis) -> None:
    raw_id, worker = die(apis), apis.worker()
    left_us = apis.operations.requeue(raw_id, died_us=START)
    (claim,) = worker.take().claims
    worker.take(0, settle=[uncounted(claim, claim.attempts.snoozed())])
    assert apis.where(raw_id) == ["scheduled:default"]
    assert not apis.operations.undo_requeue(raw_id, died_us=START, left_due_us=left_us)


def test_a_job_that_begins_between_the_read_and_the_write_is_left_alone(
    apis: ShardApis, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw_id, worker, run = die(apis), apis.worker(), Shard.run
    left_us = apis.operations.requeue(raw_id, died_us=START)

    def late(shard: Shard, script: Any, *args: Any, **options: Any) -> Any:
        if script.name == "undo_requeue":
            monkeypatch.undo()
            worker.settle(worker.take().claims[0], Action.RETRY, error="third")
        return run(shard, script, *args, **options)

    monkeypatch.setattr(Shard, "run", late)
    assert not apis.operations.undo_requeue(raw_id, died_us=START, left_due_us=left_us)
    assert apis.where(raw_id) == ["scheduled:default"]


def test_a_job_in_another_queue_by_now_is_found(apis: ShardApis) -> None:
    raw_id = die(apis)
    left_us = apis.operations.requeue(raw_id, died_us=START, delay_us=HOUR)
    assert apis.operations.move(raw_id, "other")
    assert apis.operations.undo_requeue(raw_id, died_us=START, left_due_us=left_us)
    assert apis.where(raw_id) == ["dead_letters"]
    letter = DeadLetterRecord.unpack(apis.client.hget(apis.keys("dead_bodies"), raw_id))
    assert read_attempts(letter.attempts, raw_id=raw_id, cipher=apis.shard.cipher).ended == 2


def test_a_job_that_never_ran_is_left_alone(apis: ShardApis) -> None:
    waiting, gone, left_us = apis.add(delay=SECOND), bytes(12), START + SECOND
    assert not apis.operations.undo_requeue(gone, died_us=START, left_due_us=left_us)
    assert not apis.operations.undo_requeue(waiting, died_us=START, left_due_us=left_us)
    assert apis.where(waiting) == ["scheduled:default"]


def test_the_group_has_the_time_of_the_latest(apis: ShardApis) -> None:
    first = die(apis)
    apis.clock.advance(HOUR)
    die(apis)
    before = contents(apis)["error_groups"]
    left_us = apis.operations.requeue(first, died_us=START)
    assert apis.operations.undo_requeue(first, died_us=START, left_due_us=left_us)
    assert contents(apis)["error_groups"] == before
    invariants.check_each_job_is_in_one_place(redis_state.read(apis.client, apis.keys), apis.keys)


def test_another_requeue_is_left_alone(apis: ShardApis) -> None:
    """The job failed again, and somebody else requeued it: the first person has not seen that."""
    raw_id = die(apis)
    left_us = apis.operations.requeue(raw_id, died_us=START)
    apis.clock.advance(SECOND)
    apis.kill(raw_id)
    again_us = apis.operations.requeue(raw_id, died_us=START + SECOND)
    assert not apis.operations.undo_requeue(raw_id, died_us=START, left_due_us=left_us)
    assert apis.operations.undo_requeue(raw_id, died_us=START + SECOND, left_due_us=again_us)


@pytest.mark.parametrize("delay", [0, HOUR])
def test_a_job_that_was_moved_in_time_is_left_alone(apis: ShardApis, delay: int) -> None:
    raw_id = die(apis)
    left_us = apis.operations.requeue(raw_id, died_us=START, delay_us=HOUR)
    apis.clock.advance(SECOND)
    apis.operations.reschedule(raw_id, delay_us=delay)
    assert not apis.operations.undo_requeue(raw_id, died_us=START, left_due_us=left_us)


def test_a_promoted_job_still_waits_as_it_was_left(apis: ShardApis) -> None:
    raw_id = die(apis, priority=5)
    left_us = apis.operations.requeue(raw_id, died_us=START, delay_us=SECOND)
    apis.clock.advance(HOUR)
    apis.promote()
    assert apis.where(raw_id) == ["ready:default"]
    assert apis.operations.undo_requeue(raw_id, died_us=START, left_due_us=left_us)
