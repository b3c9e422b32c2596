"""The APIs of a shard with limits."""

from collections.abc import Callable

import pytest

from tests.shard_apis import ShardApis

LIMITS = {
    "rate": {"rate": "10/s", "burst": 3},
    "even": {"rate": "100/s", "burst": 1},
    "two": {"max_running": 2},
    "one": {"max_running": 1},
    "odd": {"rate": "3/s", "burst": 1},
    "both": {"rate": "10/s", "burst": 2, "max_running": 2},
}


@pytest.fixture
def apis(make_apis: Callable[..., ShardApis]) -> ShardApis:
    """The APIs of shard 0, whose limits are stored; the queue `fair` is fair."""
    apis = make_apis(LIMITS=LIMITS, QUEUES={"default": {}, "other": {}, "fair": {"fair": True}})
    apis.store.store_limits()
    return apis
