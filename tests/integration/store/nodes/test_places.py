"""Places: an error names the shard and the server that it is about."""

from collections.abc import Callable

import pytest

from django_delayq.exceptions import StoreAuthError, StoreUnavailable
from django_delayq.testing.local_redis import LocalRedisServer
from tests.shard_apis import ShardApis


def test_an_error_names_the_shard_and_its_server(start_redis: Callable[..., LocalRedisServer]) -> None:
    server = start_redis(port=0)
    apis = ShardApis(server.url, SHARDS=3)
    place = rf"shard 2 at redis://127\.0\.0\.1:{server.port}/0"
    with server.client() as client:
        client.config_set("requirepass", "changed")
        apis.close()
        with pytest.raises(StoreAuthError, match=place):
            apis.store.operations(2).workers.resume("mail")
    server.kill()
    with pytest.raises(StoreUnavailable, match=rf"did not answer \({place}\)"):
        apis.store.operations(2).workers.resume("mail")
    with pytest.raises(StoreUnavailable, match=place):
        apis.store.shards[2].read_queues()
    with pytest.raises(StoreUnavailable, match=place):
        apis.store.shards[2].blocking_listener().listen(["key"], now=0)
