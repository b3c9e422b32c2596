"""Deadline: ENQUEUE_TIMEOUT is the time of a whole call, and an answer on an open connection may take all of it."""

from collections.abc import Callable
from time import monotonic
from typing import Any

import pytest

from django_delayq import get_job, get_store
from django_delayq.exceptions import StoreUnavailable
from django_delayq.job.job import State
from django_delayq.testing.local_redis import LocalRedisServer
from tests.chaos.proxy import Proxy
from tests.sample_app.tasks import noop


def pause(server: LocalRedisServer, ms: int) -> None:
    """Let the server answer nobody for so long."""
    with server.client() as client:
        client.execute_command("CLIENT", "PAUSE", ms, "ALL")


@pytest.mark.parametrize("act", ["enqueue", "cancel", "plain read"])
def test_an_answer_on_an_open_connection_has_all_the_time(
    act: str, start_redis: Callable[..., LocalRedisServer], delayq_settings: Any
) -> None:
    server = start_redis()
    delayq_settings.DELAYQ = {"REDIS": server.url, "ENQUEUE_TIMEOUT": 6}
    store, handle = get_store(), noop.enqueue()
    assert store.known_shards() == 0
    # More than a quarter, and far from all.
    pause(server, 2_000)
    if act == "enqueue":
        assert noop.enqueue().state is State.READY
    elif act == "cancel":
        assert handle.cancel()
    else:
        assert store.known_shards() == 0


def test_the_steps_of_a_call_share_its_time(start_redis: Callable[..., LocalRedisServer], delayq_settings: Any) -> None:
    server = start_redis(options={"requirepass": "secret"})
    with Proxy(server.url) as network:
        # Connecting, the password, the database and the answer take 0.8 s each: none alone too long, together they are.
        network.delay(0.4)
        delayq_settings.DELAYQ = {"REDIS": {"url": network.url[:-1] + "1", "password": "secret"}, "ENQUEUE_TIMEOUT": 1}
        with pytest.raises(StoreUnavailable):
            get_job(f"{'0' * 24}-0")
        network.restore()
        # And one that is given up leaves no time of its own behind.
        assert noop.enqueue().state is State.READY


def test_a_call_that_fails_on_a_closed_connection_ends_in_time(
    start_redis: Callable[..., LocalRedisServer], delayq_settings: Any
) -> None:
    server = start_redis()
    with Proxy(server.url) as network:
        delayq_settings.DELAYQ = {"REDIS": network.url, "ENQUEUE_TIMEOUT": 0.5}
        noop.enqueue()
        network.cut()
        network.hold()
        begun = monotonic()
        with pytest.raises(StoreUnavailable):
            noop.enqueue()
        # Far more than its time, and far less than nobody's limit.
        assert monotonic() - begun < 20
        network.restore()
        assert noop.enqueue().state is State.READY
