"""Deadline: ENQUEUE_TIMEOUT is the time of a whole call, and a reply on an open connection may take all of it."""

from collections.abc import Callable
from time import monotonic
from typing import Any

import pytest

from django_delayq import get_job, get_store
from django_delayq.exceptions import StoreUnavailable
from django_delayq.job.job import State
from django_delayq.store.client.at_once import at_once
from django_delayq.store.nodes.deadline import TimeOver, call_until
from django_delayq.store.nodes.resp import encode
from django_delayq.testing.local_redis import LocalRedisServer
from tests.chaos.network.proxy import Proxy
from tests.sample_app.tasks import noop


def pause(server: LocalRedisServer, ms: int) -> None:
    """Make the server reply to nobody for so many seconds."""
    with server.client() as client:
        client.execute_command("CLIENT", "PAUSE", ms, "ALL")


@pytest.mark.parametrize("act", ["enqueue", "cancel", "plain read"])
def test_a_reply_on_an_open_connection_may_take_the_whole_time(
    act: str, start_redis: Callable[..., LocalRedisServer], delayq_settings: Any
) -> None:
    server = start_redis()
    delayq_settings.DELAYQ = {"REDIS": server.url, "ENQUEUE_TIMEOUT": 6}
    store, handle = get_store(), noop.enqueue()
    assert store.stored_shard_count() == 0
    # More than a quarter of the time, and much less than all.
    pause(server, 2_000)
    if act == "enqueue":
        assert noop.enqueue().state is State.READY
    elif act == "cancel":
        assert handle.cancel()
    else:
        assert store.stored_shard_count() == 0


def test_the_steps_of_a_call_share_its_time(start_redis: Callable[..., LocalRedisServer], delayq_settings: Any) -> None:
    server = start_redis(options={"requirepass": "secret"})
    with Proxy(server.url) as network:
        # Connecting, the password, the database and the reply take 4 s each: together they take too long.
        network.delay(2)
        delayq_settings.DELAYQ = {"REDIS": {"url": network.url[:-1] + "1", "password": "secret"}, "ENQUEUE_TIMEOUT": 5}
        with pytest.raises(StoreUnavailable):
            get_job(f"{'0' * 24}-0")
        network.restore()
        # A call that timed out leaves the next one its full time.
        assert noop.enqueue().state is State.READY


def test_no_call_is_sent_after_the_time_of_a_block(
    start_redis: Callable[..., LocalRedisServer], delayq_settings: Any
) -> None:
    server = start_redis()
    with Proxy(server.url) as network:
        delayq_settings.DELAYQ = {"REDIS": network.url, "SHARDS": 1}
        store = get_store()
        assert store.stored_shard_count() == 0
        sent = network.requests
        with call_until(monotonic()):
            # A later end within it does not hold.
            with call_until(monotonic() + 60), pytest.raises(StoreUnavailable) as caught:
                noop.enqueue()
            for connected in (True, False):
                if not connected:
                    store.disconnect_idle()
                with pytest.raises(StoreUnavailable):
                    store.stored_shard_count()
                with pytest.raises(TimeOver):
                    at_once([lambda: None, lambda: store.topology.node(0).producers.send(encode("PING"))])
        assert network.requests == sent
        assert (caught.value.slow, caught.value.maybe_accepted) == (True, False)
        assert noop.enqueue().state is State.READY


def test_a_call_that_fails_on_a_closed_connection_ends_in_time(
    start_redis: Callable[..., LocalRedisServer], delayq_settings: Any
) -> None:
    server = start_redis()
    with Proxy(server.url) as network:
        delayq_settings.DELAYQ = {"REDIS": network.url, "ENQUEUE_TIMEOUT": 5}
        noop.enqueue()
        network.cut()
        network.hold()
        begun = monotonic()
        with pytest.raises(StoreUnavailable):
            noop.enqueue()
        # Much more than its time, and much less than no limit.
        assert monotonic() - begun < 20
        network.restore()
        assert noop.enqueue().state is State.READY
