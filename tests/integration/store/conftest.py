"""Doors on the session's server, and on one of the test's own whose memory can be filled."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis import Redis

from django_delayq.testing.local_redis import LocalRedisServer
from tests.shard_apis import Doors


@pytest.fixture
def make_doors(client: Redis, redis_url: str) -> Iterator[Callable[..., Doors]]:
    """Open doors with settings of their own: `make_doors(DUE_FIRST=60)`."""
    made: list[Doors] = []

    def make(**options: Any) -> Doors:
        made.append(Doors(redis_url, **options))
        return made[-1]

    yield make
    for doors in made:
        doors.close()


@pytest.fixture
def doors(make_doors: Callable[..., Doors]) -> Doors:
    """The doors of shard 0 under a turned clock."""
    return make_doors()


@pytest.fixture
def own_doors(start_redis: Callable[..., LocalRedisServer]) -> Iterator[Doors]:
    """Doors on a server that the test may fill: `fill_memory()`."""
    doors = Doors(start_redis(options={"maxmemory-policy": "noeviction"}).url)
    yield doors
    doors.close()
