"""Foreign records, written by other code: each reads as damaged or empty, and stops neither process nor page."""

import functools
from typing import Any

import pytest
from redis import exceptions as redis_errors

from django_delayq import get_store
from django_delayq.conf.redis_settings import RedisConfig
from django_delayq.dispatcher.dispatcher import LeadTime
from django_delayq.exceptions import BadBody, StaleExchange, StoreAuthError
from django_delayq.job.attempts import AttemptHistory
from django_delayq.job.body.codec import decode
from django_delayq.job.job import State
from django_delayq.job.outcome import Action
from django_delayq.store.nodes.errors import to_store_error
from tests.chaos.records.hostile import body
from tests.shard_apis import ShardApis, settlement


def test_a_score_before_all_time_does_not_let_a_dispatcher_sleep_forever() -> None:
    lead_time = LeadTime()
    lead_time.record_late(-(2**63))
    assert lead_time.sleep(1_000_000) <= 1


@pytest.mark.parametrize("name", ["t", "h"])
def test_a_time_limit_that_is_no_float_is_damage(name: str) -> None:
    with pytest.raises(BadBody):
        decode(body(text=b'[[1],{},{"%s":1%s}]' % (name.encode(), b"0" * 400)), raw_id=bytes(12), shard=0)


def test_arguments_nested_deeper_than_allowed_are_damage() -> None:
    with pytest.raises(BadBody):
        decode(body(text=b"[" * 400 + b"]" * 400), raw_id=bytes(12), shard=0)


def test_a_history_drops_fields_with_a_deeper_structure() -> None:
    deep = b"[" * 900 + b"]" * 900
    record = b'\0\1\1[{"worker":%s,"error":%s,"x":1,"ending":"failed"}]' % (deep, deep)
    assert AttemptHistory.unpack(record).history == ({"ending": "failed"},)


@pytest.mark.parametrize(
    "message",
    [
        "Error running script (call to f_a): @user_script:1: @user_script: 1: "
        "The user executing the script can't run this command or subcommand",
        "The user executing the script can't access at least one of the keys mentioned in the command arguments",
        "ACL failure in script: User t2 has no permissions to run the 'get' command script: on @user_script:1.",
    ],
)
def test_a_refusal_inside_a_script_is_read_as_a_refusal(message: str) -> None:
    assert isinstance(to_store_error(redis_errors.ResponseError(message)), StoreAuthError)


def test_a_callable_that_holds_a_password_is_not_shown() -> None:
    assert "s3cret" not in repr(RedisConfig.read(functools.partial(str, "redis://:s3cret@host")))


@pytest.mark.parametrize("score", ["-inf", "inf", "1e308"])
def test_a_job_with_an_infinite_score_can_be_read(score: str, client: Any, delayq_settings: Any) -> None:
    inspection = get_store().lookup(0)
    keys = inspection._shard.keys
    client.execute_command("ZADD", keys.ready("default"), score, b"i" * 14)
    assert inspection.find(b"i" * 12, member=b"i" * 14).state is State.READY
    assert inspection.page(State.READY, queues=["default"]).rows


def test_a_worker_with_a_damaged_request_number_gets_a_reply(client: Any, redis_url: str) -> None:
    apis = ShardApis(redis_url)
    worker = apis.worker()
    for record in (b"", b"x", b"\0" * 9):
        apis.add()
        client.hset(apis.keys("exchanges"), worker.code, record)
        assert len(worker.take(1).claims) == 1
    apis.close()


@pytest.mark.parametrize("next_moment", [b"nan", b"inf", b"1e300", b"9e15"])
def test_a_foreign_time_of_the_next_promotion_does_not_stop_workers_from_promoting(
    next_moment: bytes, client: Any, redis_url: str
) -> None:
    apis = ShardApis(redis_url)
    client.set(apis.keys("next_promotion"), next_moment)
    assert apis.worker().take(1).dispatcher_overdue
    apis.close()


def test_a_foreign_later_request_number_costs_a_worker_one_request(client: Any, redis_url: str) -> None:
    apis = ShardApis(redis_url)
    worker = apis.worker()
    apis.add()
    (claim,) = worker.take(1).claims
    client.hset(apis.keys("exchanges"), worker.code, b"\xff" * 20)
    with pytest.raises(StaleExchange):
        worker.take(0)
    answer = worker.take(0, settle=[settlement(claim, Action.ACKNOWLEDGE)])
    assert (answer.unknown_worker, answer.lost) == (True, frozenset())
    assert not client.exists(apis.keys("jobs"))
    apis.close()
