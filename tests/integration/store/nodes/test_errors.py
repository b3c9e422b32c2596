"""Errors: an error reply is freed with its last reference, and the variables of its callers with it."""

import weakref
from collections.abc import Callable
from contextlib import suppress

import pytest
from redis.exceptions import NoScriptError

from django_delayq.store.nodes.resp import encode
from django_delayq.store.routing.route import Route
from tests.shard_apis import ShardApis

UNKNOWN_SCRIPT = encode("EVALSHA", "0" * 40, 0)


class Large:
    """A variable of a caller."""


def refused(call: Callable[[], object]) -> weakref.ref[Large]:
    """Return a weak reference to a variable of a function whose call Redis refused."""
    large = Large()
    with suppress(NoScriptError):
        call()
        raise AssertionError("Redis ran it")
    return weakref.ref(large)


CALLS: dict[str, Callable[[Route], object]] = {
    "one": lambda route: route.read(UNKNOWN_SCRIPT),
    "several": lambda route: route.read_all([UNKNOWN_SCRIPT, encode("PING")]),
    "shared": lambda route: route.read_shared(UNKNOWN_SCRIPT),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_an_error_reply_is_freed_without_the_garbage_collector(
    apis: ShardApis, no_collector: None, call: Callable[[Route], object]
) -> None:
    assert refused(lambda: call(apis.shard.route))() is None
