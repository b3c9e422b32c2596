"""APIs on the session's server, and on a server of the test's own whose memory can be filled; no garbage collector."""

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis import Redis

from django_delayq.testing.local_redis import LocalRedisServer
from tests.shard_apis import ShardApis


@pytest.fixture
def make_apis(client: Redis, redis_url: str) -> Iterator[Callable[..., ShardApis]]:
    """Make APIs with other settings: `make_apis(DUE_FIRST=60)`."""
    made: list[ShardApis] = []

    def make(**options: Any) -> ShardApis:
        made.append(ShardApis(redis_url, **options))
        return made[-1]

    yield make
    for apis in made:
        apis.close()


@pytest.fixture
def apis(make_apis: Callable[..., ShardApis]) -> ShardApis:
    """The APIs of shard 0 with a fake clock."""
    return make_apis()


@pytest.fixture
def own_apis(start_redis: Callable[..., LocalRedisServer]) -> Iterator[ShardApis]:
    """APIs on a server that the test may fill: `fill_memory()`."""
    apis = ShardApis(start_redis(options={"maxmemory-policy": "noeviction"}).url)
    yield apis
    apis.close()


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Switch the garbage collector off."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
