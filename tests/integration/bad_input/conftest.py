"""Fixtures of the tests of bad input, after which Redis must be empty."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis import Redis

from django_delayq.testing.local_redis import LocalRedisServer
from tests.integration.bad_input.refusals import SECRET


@pytest.fixture(autouse=True)
def nothing_stored(delayq_settings: Any, client: Redis) -> Iterator[None]:
    """Check after the test that the server holds no key."""
    yield
    assert client.dbsize() == 0


@pytest.fixture
def own_registry(registered: Any) -> None:
    registered()


@pytest.fixture
def guarded(start_redis: Callable[..., LocalRedisServer]) -> LocalRedisServer:
    """A server with a password, and users with too few permissions."""
    server = start_redis(port=0, options={"requirepass": SECRET})
    with server.client(password=SECRET) as other:
        # One user may only use keys of another prefix, another user may not run scripts.
        other.execute_command("ACL", "SETUSER", "shop", "on", f">{SECRET}", "~other:*", "+@all")
        other.execute_command("ACL", "SETUSER", "noscript", "on", f">{SECRET}", "~*", "+@all", "-@scripting")
        other.execute_command("ACL", "SETUSER", "reader", "on", f">{SECRET}", "~*", "+@read", "+@connection")
    return server
