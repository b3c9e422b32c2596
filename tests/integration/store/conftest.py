"""Doors on the session's server, and on one of the test's own whose memory can be filled."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis import Redis

from django_delayq.testing.local_redis import LocalRedisServer
from tests.shard_apis import ShardApis


@pytest.fixture
def make_doors(client: Redis, redis_url: str) -> Iterator[Callable[..., ShardApis]]:
    """Open apis with settings of their own: `make_doors(DUE_FIRST=60)`."""
    made: list[ShardApis] = []

    def make(**options: Any) -> ShardApis:
        made.append(ShardApis(redis_url, **options))
        return made[-1]

    yield make
    for apis in made:
        apis.close()


@pytest.fixture
def apis(make_doors: Callable[..., ShardApis]) -> ShardApis:
    """The apis of shard 0 under a turned clock."""
    return make_doors()


@pytest.fixture
def own_doors(start_redis: Callable[..., LocalRedisServer]) -> Iterator[ShardApis]:
    """Doors on a server that the test may fill: `fill_memory()`."""
    apis = ShardApis(start_redis(options={"maxmemory-policy": "noeviction"}).url)
    yield apis
    apis.close()
