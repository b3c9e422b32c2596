"""Fixtures of the tests of tenants: a fair queue, one with a limit, and one without options."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.admin.conftest import RedisClock
from tests.shard_apis import ShardApis

QUEUES = {"mail": {"fair": True, "weights": {"acme": 3}}, "small": {"max_waiting": 2_000}, "default": {}}


@pytest.fixture
def stock(delayq_settings: Any, redis_url: str) -> Iterator[ShardApis]:
    """The APIs of the store behind the pages, with these queues."""
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "QUEUES": QUEUES}
    apis = ShardApis(redis_url, clock=RedisClock(), QUEUES=QUEUES)
    yield apis
    apis.close()


@pytest.fixture
def shards(delayq_settings: Any, redis_url: str) -> Iterator[list[ShardApis]]:
    """The APIs of each of three shards."""
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "QUEUES": QUEUES, "SHARDS": 3}
    apis = [ShardApis(redis_url, shard=number, SHARDS=3, clock=RedisClock(), QUEUES=QUEUES) for number in range(3)]
    yield apis
    for each in apis:
        each.close()
