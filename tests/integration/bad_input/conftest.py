"""Fixtures of the tests of bad input: after each test nothing may be stored."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis import Redis

from django_delayq.task import registry
from django_delayq.testing.local_redis import LocalRedisServer
from tests.integration.bad_input.refusals import SECRET


@pytest.fixture(autouse=True)
def nothing_stored(delayq_settings: Any, client: Redis) -> Iterator[None]:
    """Whatever a test tried: the server it could have reached holds nothing."""
    yield
    assert client.dbsize() == 0


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_tasks", dict(registry._tasks))


@pytest.fixture
def guarded(start_redis: Callable[..., LocalRedisServer]) -> LocalRedisServer:
    """A server with a password, and a user `shop` who may do too little."""
    server = start_redis(port=0, options={"requirepass": SECRET})
    with server.client(password=SECRET) as other:
        # A user may see keys that are not ours only, or not run scripts.
        other.execute_command("ACL", "SETUSER", "shop", "on", f">{SECRET}", "~other:*", "+@all")
        other.execute_command("ACL", "SETUSER", "noscript", "on", f">{SECRET}", "~*", "+@all", "-@scripting")
        other.execute_command("ACL", "SETUSER", "reader", "on", f">{SECRET}", "~*", "+@read", "+@connection")
    return server
