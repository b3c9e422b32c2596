"""Enqueue one: the script for one job without a key leaves the same keys as the script for batches, byte for byte."""

from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

from django_delayq.exceptions import ScriptFault
from django_delayq.job.unsent import UnsentJob
from django_delayq.store.enqueue import EnqueueCall
from tests.shard_apis import HOUR, START, ShardApis

Dumps = dict[bytes, bytes]


def dumps(client: Redis) -> Dumps:
    return {key: client.dump(key) for key in client.keys("*")}


def restore(client: Redis, before: Dumps) -> None:
    client.flushall()
    for key, value in before.items():
        client.restore(key, 0, value)


def as_batch(apis: ShardApis, item: UnsentJob) -> Any:
    """Enqueue one job by the script for batches."""
    remaining_us = apis.intake.prepare([item])._each_remaining_us
    call = apis.intake._prepare_batch([item], remaining_us, left=(), layout=0)
    return EnqueueCall(call, [item], remaining_us).result()


def empty(apis: ShardApis) -> None:
    pass


def with_ready(apis: ShardApis) -> None:
    apis.add()


def with_scheduled(apis: ShardApis) -> None:
    apis.add(due=START + 2 * HOUR)


def without_index(apis: ShardApis) -> None:
    apis.add(due=START + HOUR // 2)
    apis.client.delete(apis.keys("next_due"))


def with_promotion_ahead(apis: ShardApis) -> None:
    apis.promote("default")


def with_notification_of_another_type(apis: ShardApis) -> None:
    apis.client.set(apis.keys("notify"), "edited manually")


BEFORE: list[Callable[[ShardApis], object]] = [
    empty,
    with_ready,
    with_scheduled,
    without_index,
    with_promotion_ahead,
    with_notification_of_another_type,
]
DRAFTS: dict[str, dict[str, Any]] = {
    "now": {},
    "past": {"due": START - HOUR},
    "delayed": {"delay": HOUR},
    "at": {"due": START + HOUR},
    "urgent": {"priority": 100},
    "later priority": {"priority": -100, "delay": 1},
    "queue": {"queue": "a b:c"},
    "queue, delayed": {"queue": "a b:c", "delay": HOUR},
}


@pytest.mark.parametrize("before", BEFORE, ids=lambda before: before.__name__)
@pytest.mark.parametrize("options", DRAFTS.values(), ids=DRAFTS)
def test_both_scripts_leave_the_same_keys(
    apis: ShardApis, client: Redis, before: Callable[[ShardApis], object], options: dict[str, Any]
) -> None:
    before(apis)
    item, start = apis.draft(**options), dumps(client)
    batch = as_batch(apis, item)
    expected = dumps(client)
    assert expected != start
    restore(client, start)
    assert apis.enqueue(item) == batch
    assert dumps(client) == expected
    # Both are safe to repeat.
    assert apis.enqueue(item) == as_batch(apis, item) == batch
    assert dumps(client) == expected


#: noun -> a value of another type.
WRONG_TYPES = {
    **dict.fromkeys(("jobs", "dead_bodies", "queues", "withdrawn", "next_due"), "text"),
    **dict.fromkeys(("ready:default", "scheduled:default"), "text"),
    "next_promotion": ["a", "list"],
}
#: The keys that only a job which is due now, or only a delayed one, needs.
ONLY_NOW, ONLY_DELAYED = {"queues", "ready:default"}, {"next_due", "next_promotion", "scheduled:default"}


@pytest.mark.parametrize("noun", WRONG_TYPES)
@pytest.mark.parametrize("delay", [None, HOUR], ids=["now", "delayed"])
def test_a_key_of_another_type_fails_before_anything_changes(
    apis: ShardApis, client: Redis, noun: str, delay: int | None
) -> None:
    wrong = WRONG_TYPES[noun]
    if isinstance(wrong, str):
        client.set(apis.keys(noun), wrong)
    else:
        client.rpush(apis.keys(noun), *wrong)
    start = dumps(client)
    if noun in (ONLY_DELAYED if delay is None else ONLY_NOW):
        apis.add(delay=delay)
        assert dumps(client) != start
    else:
        with pytest.raises(ScriptFault):
            apis.add(delay=delay)
        assert dumps(client) == start


def known(apis: ShardApis, item: UnsentJob) -> None:
    apis.enqueue(item)
    apis.worker().take(1)


def dead(apis: ShardApis, item: UnsentJob) -> None:
    apis.enqueue(item)
    apis.kill(item.job.raw_id)


def withdrawn(apis: ShardApis, item: UnsentJob) -> None:
    assert not apis.operations.cancel(item.job.raw_id, may_arrive=True)


@pytest.mark.parametrize("make", [known, dead, withdrawn])
@pytest.mark.parametrize("options", [{}, {"delay": HOUR}], ids=["now", "delayed"])
def test_a_job_that_was_stored_or_withdrawn_is_skipped(
    apis: ShardApis, client: Redis, make: Callable[[ShardApis, UnsentJob], None], options: dict[str, Any]
) -> None:
    item = apis.draft()
    make(apis, item)
    start = dumps(client)
    apis.enqueue(apis.draft(raw_id=item.job.raw_id, **options))
    assert dumps(client) == start
