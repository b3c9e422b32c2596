"""Lost replies: after an enqueue or cancel without a reply, a handle reads the job's state in Redis."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.test import override_settings
from redis import Redis

from django_delayq import Throttle, enqueue_many, get_store
from django_delayq.exceptions import StoreError, StoreUnavailable
from django_delayq.job.job import State
from django_delayq.store.claims import Claims
from django_delayq.task.handle import JobHandle
from django_delayq.testing.local_redis import LocalRedisServer
from tests.chaos.network.proxy import Proxy
from tests.sample_app.tasks import noop
from tests.subprocesses import until


@pytest.fixture
def server(start_redis: Callable[..., LocalRedisServer], delayq_settings: Any) -> LocalRedisServer:
    """A server of its own."""
    server = start_redis()
    delayq_settings.DELAYQ = {"REDIS": server.url}
    return server


@contextmanager
def frozen(server: LocalRedisServer) -> Iterator[None]:
    """Suspend the server: it receives requests, and runs them when the block ends. Calls time out soon meanwhile."""
    with override_settings(DELAYQ={"REDIS": server.url, "ENQUEUE_TIMEOUT": 0.3}):
        # The first call for a job with a key reads the layout of the shards before it sends the job.
        until(layout_is_known, what="the layout of the shards")
        os.kill(server.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(server.pid, signal.SIGCONT)


def layout_is_known() -> bool:
    with suppress(StoreUnavailable):
        get_store().check_shards_once()
    return get_store().layouts.is_checked


def bodies(server: LocalRedisServer) -> int:
    with server.client() as client:
        return client.hlen("delayq:{0}:jobs")


def in_doubt(server: LocalRedisServer, *, delay: float = 3_600, arrives: bool = True) -> tuple[JobHandle, StoreError]:
    """Return a job whose enqueue had no reply, and its error; the job arrived anyway, or was lost on its way."""
    handle = noop.after(delay).job() if delay else noop.job()
    # This loads the script; otherwise the server would only reply that it lacks the script.
    noop.enqueue().cancel()
    with frozen(server), pytest.raises(StoreUnavailable) as caught:
        enqueue_many([handle])
    assert caught.value.maybe_accepted
    until(lambda: bodies(server) == 1, what="the job to arrive")
    if not arrives:
        with server.client() as client:
            client.flushall()
    return handle, caught.value


def test_a_job_that_arrived_without_a_reply_is_cancelled_in_redis(server: LocalRedisServer) -> None:
    handle, error = in_doubt(server)
    assert handle.cancel() is True
    assert (handle.state, bodies(server)) == (State.GONE, 0)
    error.resend()
    assert bodies(server) == 0, "it was revived"


def test_a_throttled_job_that_arrived_without_a_reply_is_the_first_of_its_window(server: LocalRedisServer) -> None:
    task = noop.using(key="k", unique=Throttle(60))
    # This loads the script.
    task.using(key="other").enqueue()
    handle = task.job()
    with frozen(server), pytest.raises(StoreUnavailable) as caught:
        enqueue_many([handle])
    until(lambda: bodies(server) == 2, what="the job to arrive")
    assert task.enqueue().id == handle.id
    caught.value.resend()
    assert handle.created and bodies(server) == 2
    assert handle.cancel() and task.enqueue().created


def test_cancel_returns_false_if_the_job_already_runs(server: LocalRedisServer) -> None:
    handle, error = in_doubt(server, delay=0)
    store = get_store()
    claims = Claims(store.shards[0], worker_id=b"a worker")
    assert claims.settle_and_claim(claims.prepare(queues=["default"], want=1, settlements=[], strict=False)).claims
    assert handle.cancel() is False
    assert handle.state is State.CLAIMED
    with server.client() as client:
        # As if the job had ended by now.
        client.flushall()
    error.resend()
    assert bodies(server) == 0, "it ran twice"


def test_cancel_returns_false_if_redis_does_not_have_the_job(server: LocalRedisServer) -> None:
    handle, error = in_doubt(server, arrives=False)
    assert handle.refresh().state is State.UNSENT
    assert handle.cancel() is False, "it may have run meanwhile"
    error.resend()
    assert bodies(server) == 0 and handle.state is State.GONE


def test_a_cancel_without_a_reply_can_be_repeated_with_the_same_result(
    server: LocalRedisServer, delayq_settings: Any
) -> None:
    with Proxy(server.url) as network:
        delayq_settings.DELAYQ = {"REDIS": network.url}
        handle = noop.after(60).enqueue()
        # This loads the script: the next cancel takes effect although its reply is lost.
        noop.enqueue().cancel()
        network.cut_reply_after(0, of="EVALSHA")
        with pytest.raises(StoreUnavailable):
            handle.cancel()
        assert bodies(server) == 0
        assert handle.cancel() is True
        assert JobHandle(raw_id=handle._raw_id, shard=0).cancel() is False
    assert handle.state is State.GONE


def test_a_doubtful_job_is_moved_in_redis(server: LocalRedisServer) -> None:
    handle, error = in_doubt(server)
    assert handle.reschedule(delay=7_200) is True
    error.resend()
    due = handle.refresh().due
    assert due is not None
    with server.client() as client:
        assert client.zrange("delayq:{0}:scheduled:default", 0, -1, withscores=True)[0][1] == due.timestamp() * 1e6


def test_a_doubtful_job_that_redis_does_not_have_is_sent_for_its_new_time(server: LocalRedisServer) -> None:
    handle, error = in_doubt(server, arrives=False)
    assert handle.reschedule(delay=0) is False
    error.resend()
    assert handle.state is State.READY


def test_a_refused_job_is_certainly_unsent(server: LocalRedisServer) -> None:
    with server.client() as client:
        client.config_set("maxmemory", 1)
        handle = noop.job()
        with pytest.raises(StoreError) as caught:
            enqueue_many([handle])
        client.config_set("maxmemory", 0)
    assert not caught.value.maybe_accepted
    server.kill()
    assert handle.cancel() is True, "it needed Redis"


def test_a_job_that_may_have_arrived_may_still_be_there_after_a_refused_resend(server: LocalRedisServer) -> None:
    _, error = in_doubt(server)
    server.kill()
    with pytest.raises(StoreUnavailable) as caught:
        error.resend()
    assert caught.value.maybe_accepted


def test_async_methods_of_a_handle_do_the_same(server: LocalRedisServer, client: Redis) -> None:
    async def change(handle: JobHandle) -> tuple[bool, State, bool, bool]:
        moved = await handle.areschedule(delay=7_200)
        return moved, (await handle.arefresh()).state, await handle.acancel(), await handle.acancel()

    handle, _ = in_doubt(server)
    assert async_to_sync(change)(handle) == (True, State.SCHEDULED, True, True)
    assert bodies(server) == 0
