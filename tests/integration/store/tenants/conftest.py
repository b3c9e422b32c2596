"""The APIs of a shard with fair queues."""

from collections.abc import Callable

import pytest

from tests.shard_apis import ShardApis

QUEUES = {
    "fair": {"fair": True, "weights": {"large": 3}},
    "other": {"fair": True},
    "capped": {"max_waiting": 3},
    "default": {},
}


@pytest.fixture
def apis(make_apis: Callable[..., ShardApis]) -> ShardApis:
    """The APIs of shard 0: in the queue `fair` the tenant `large` has weight 3, in `capped` 3 jobs may wait."""
    return make_apis(QUEUES=QUEUES)
