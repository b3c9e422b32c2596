"""Ended jobs: with ENCRYPT on, what a job leaves in Redis is encrypted, whatever ended it.

Without encryption the same steps leave plain text, so the search finds what it looks for.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from django_delayq.dispatcher.dispatcher import Dispatcher
from django_delayq.job.body.codec import ENCRYPTED_FORMAT
from django_delayq.job.job import Expiry, Job, State
from django_delayq.job.outcome import Outcome, OutcomeKind
from django_delayq.job.retry import RetryPolicy
from django_delayq.store.records import DeadLetterRecord, ResultRecord
from django_delayq.worker.settlement import decide_settlement
from tests.factories import unsent
from tests.inspection import everything
from tests.shard_apis import DAY, HOUR, SECOND, ShardApis

#: Words of each plain text that is stored of an ended job.
WORDS = (b'"state"', b'"ended_us"', b'"error"', b'"ending"', b"canary")
SUCCESS = Outcome(kind=OutcomeKind.SUCCEEDED, result='"canary"')
#: Bytes of an attempts record that scripts read.
ATTEMPTS_HEAD = 3
FAILURE = Outcome(kind=OutcomeKind.FAILED, error="canary")


@pytest.fixture(params=[True, False], ids=["on", "off"])
def apis(request: pytest.FixtureRequest, client: Any, redis_url: str) -> Iterator[ShardApis]:
    """The APIs of a store, with ENCRYPT on or off."""
    apis = ShardApis(redis_url, ENCRYPT=request.param, ENCRYPTION_KEYS=["secret " * 10])
    yield apis
    apis.close()


def add(apis: ShardApis, **options: Any) -> bytes:
    """Send a job that keeps its result, is due in a second, and has one attempt."""
    job = replace(apis.draft("canary", ttl=DAY).job, retry=RetryPolicy(max_attempts=1), **options)
    draft = unsent(job, max_payload=10_000)
    apis.enqueue(draft.rescheduled(delay_us=SECOND, due_us=None, called_at=apis.clock.steady()))
    return job.raw_id


def run(apis: ShardApis, outcome: Outcome, *, stop: bool = False) -> None:
    """Let a worker claim the job and end with this outcome."""
    apis.clock.advance(SECOND)
    apis.promote()
    worker = apis.worker()
    [claim] = worker.take().claims
    if stop:
        assert apis.operations.stop(claim.raw_id, grace_us=SECOND)
    assert not worker.take(0, settle=[decide_settlement(claim, outcome, worker="w")]).lost


def lapse(apis: ShardApis, *, stop: bool = False) -> None:
    """Let a worker claim the job and die, and let a dispatcher judge it."""
    apis.clock.advance(SECOND)
    apis.promote()
    [claim] = apis.worker().take().claims
    if stop:
        assert apis.operations.stop(claim.raw_id, grace_us=SECOND)
    dispatcher = Dispatcher(apis.shard, apis.promotion)
    for _ in range(3):
        # After the first jump it waits for workers that live.
        apis.clock.advance(apis.config.worker.lease_us + apis.config.dispatcher.recovery_us)
        dispatcher.promote()


def expiry(apis: ShardApis, *, dead: bool) -> Expiry:
    return Expiry(moment_us=apis.clock.now_us + HOUR, dead=dead)


def done(apis: ShardApis) -> bytes:
    raw_id = add(apis)
    run(apis, SUCCESS)
    return raw_id


def failed(apis: ShardApis) -> bytes:
    raw_id = add(apis)
    run(apis, FAILURE)
    return raw_id


def cancelled(apis: ShardApis) -> bytes:
    raw_id = add(apis)
    assert apis.operations.cancel(raw_id)
    return raw_id


def expired(apis: ShardApis) -> bytes:
    raw_id = add(apis, expiry=expiry(apis, dead=False))
    run(apis, Outcome(kind=OutcomeKind.EXPIRED))
    return raw_id


def expired_and_dead(apis: ShardApis) -> bytes:
    raw_id = add(apis, expiry=expiry(apis, dead=True))
    run(apis, Outcome(kind=OutcomeKind.EXPIRED))
    return raw_id


def stopped(apis: ShardApis) -> bytes:
    raw_id = add(apis)
    run(apis, Outcome(kind=OutcomeKind.STOPPED), stop=True)
    return raw_id


def stopped_with_its_worker(apis: ShardApis) -> bytes:
    raw_id = add(apis)
    lapse(apis, stop=True)
    return raw_id


def dead_with_its_worker(apis: ShardApis) -> bytes:
    raw_id = add(apis)
    lapse(apis)
    return raw_id


ENDS = {
    done: State.DONE,
    failed: State.DEAD,
    cancelled: State.CANCELLED,
    expired: State.EXPIRED,
    expired_and_dead: State.DEAD,
    stopped: State.CANCELLED,
    stopped_with_its_worker: State.CANCELLED,
    dead_with_its_worker: State.DEAD,
}


@pytest.mark.parametrize(("end", "state"), ENDS.items(), ids=[end.__name__ for end in ENDS])
def test_what_an_ended_job_leaves_is_encrypted(
    end: Callable[[ShardApis], bytes], state: State, apis: ShardApis
) -> None:
    raw_id = end(apis)
    found = apis.inspection.find(raw_id)
    # Whoever has the key reads all of it.
    assert (found.state, found.fault) == (state, "") and isinstance(found.job, Job)
    assert (found.result is not None) is (state is not State.DEAD)
    stored = everything(apis.client)
    plain = [word for word in WORDS if word in stored]
    assert bool(plain) is not apis.config.encrypt
    if state is State.DEAD:
        letter = DeadLetterRecord.unpack(apis.client.hget(apis.keys("dead_bodies"), raw_id))
        texts, body = [letter.attempts[ATTEMPTS_HEAD:]], letter.body
    else:
        [kept] = apis.client.lrange(apis.keys.results(raw_id), 0, -1)
        attempts, ending, body = ResultRecord.unpack(kept)
        texts = [ending, *([attempts[ATTEMPTS_HEAD:]] if len(attempts) > ATTEMPTS_HEAD else [])]
        assert 0 < apis.client.pttl(apis.keys.results(raw_id)) <= DAY // 1_000
    assert [text[:1] == b"\x01" for text in texts] == [apis.config.encrypt] * len(texts)
    assert (body[0] == ENCRYPTED_FORMAT) is apis.config.encrypt
