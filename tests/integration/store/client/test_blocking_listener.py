"""Blocking listener: a notification ends its pop, and a connection that stays silent after its pop is closed."""

import os
import select
import signal
from collections.abc import Iterator
from contextlib import closing

import pytest
from redis import Redis

from django_delayq.exceptions import StoreUnavailable
from django_delayq.store.client.blocking_listener import BLOCK, BlockingListener
from django_delayq.store.nodes.connections import COMMAND_TIMEOUT
from django_delayq.store.nodes.resp import encode
from tests.shard_apis import ShardApis
from tests.subprocesses import listeners, until

#: Seconds to wait for a readable socket.
PATIENCE = 30.0
#: The time of the first pop, and the last time at which its silence is normal.
BEGAN = 1_000.0
LAST = BEGAN + BLOCK + COMMAND_TIMEOUT


@pytest.fixture
def notification(apis: ShardApis) -> str:
    """The key to which it listens."""
    return apis.keys.notify("default")


@pytest.fixture
def silent(apis: ShardApis) -> Iterator[BlockingListener]:
    """A listener that does not listen yet, of a server that knows the script `enqueue`."""
    apis.add(queue="mail")
    with closing(apis.shard.blocking_listener()) as made:
        yield made


@pytest.fixture
def listener(silent: BlockingListener, notification: str) -> BlockingListener:
    """A listener that listens since BEGAN."""
    silent.listen([notification], now=BEGAN)
    return silent


def test_a_notification_ends_the_pop(listener: BlockingListener, notification: str, client: Redis) -> None:
    client.rpush(notification, 1)
    assert select.select([listener], [], [], PATIENCE)[0]
    assert listener.read_notification() == notification


def test_a_connection_that_stays_silent_after_its_pop_should_have_ended_is_replaced(
    listener: BlockingListener, notification: str, client: Redis
) -> None:
    listener.listen([notification], now=LAST)
    with pytest.raises(StoreUnavailable, match="no answer to a blocking pop"):
        listener.listen([notification], now=LAST + 0.001)
    assert listener.fileno() == -1
    listener.listen([notification], now=LAST + 1)
    # The server may not know yet that the first connection is closed, and pop a notification for it.
    until(lambda: client.rpush(notification, 1) and select.select([listener], [], [], 0)[0], what="a bell")
    assert listener.read_notification() == notification


def test_silence_is_counted_from_the_latest_pop(listener: BlockingListener, notification: str, client: Redis) -> None:
    client.rpush(notification, 1)
    assert select.select([listener], [], [], PATIENCE)[0]
    listener.read_notification()
    listener.listen([notification], now=LAST)
    listener.listen([notification], now=LAST + BLOCK)
    assert listener.fileno() != -1


def test_a_chained_call_runs_when_a_notification_ends_the_pop(
    apis: ShardApis, listener: BlockingListener, notification: str, client: Redis
) -> None:
    call = apis.intake.prepare([apis.draft()])._call
    listener.listen([notification], now=BEGAN, behind=call)
    until(lambda: listeners(client) == 1, what="the pop")
    assert apis.ready() == {}
    client.rpush(notification, 1)
    assert select.select([listener], [], [], PATIENCE)[0]
    assert len(apis.ready()) == 1
    assert listener.read_notification() == notification
    assert call.result()[0] == apis.clock.now_us


def test_a_chained_call_runs_when_the_pop_times_out(
    apis: ShardApis, silent: BlockingListener, notification: str
) -> None:
    call = apis.intake.prepare([apis.draft()])._call
    silent.listen([notification], now=BEGAN, block=0.05, behind=call)
    assert select.select([silent], [], [], PATIENCE)[0]
    assert silent.read_notification() is None
    assert call.result() and len(apis.ready()) == 1


def test_a_chained_call_does_not_run_if_its_connection_is_closed(
    apis: ShardApis, listener: BlockingListener, notification: str, client: Redis
) -> None:
    listener.listen([notification], now=BEGAN, behind=apis.intake.prepare([apis.draft()])._call)
    until(lambda: listeners(client) == 1, what="the pop")
    listener.close()
    until(lambda: listeners(client) == 0, what="its end")
    client.rpush(notification, 1)
    assert apis.ready() == {}
    assert client.llen(notification) == 1


def test_a_reply_without_a_reader_is_not_taken_for_a_notification(
    listener: BlockingListener, notification: str, client: Redis
) -> None:
    for _ in range(2):
        client.rpush(notification, 1)
        assert select.select([listener], [], [], PATIENCE)[0]
        assert listener.read_notification() == notification
        listener.send_without_reply(encode("SREM", "nothing", "there"))
        listener.listen([notification], now=BEGAN)
        assert not select.select([listener], [], [], 0)[0]


@pytest.mark.parametrize("closed", [True, False])
def test_nothing_is_sent_on_a_closed_connection(apis: ShardApis, listener: BlockingListener, closed: bool) -> None:
    if closed:
        listener.close()
    else:
        listener._connection.disconnect()
    with pytest.raises(StoreUnavailable, match="was closed"):
        listener.send_without_reply(encode("PING"))
    assert listener.fileno() == -1


def test_silence_is_counted_from_the_end_of_the_pop(silent: BlockingListener, notification: str) -> None:
    silent.listen([notification], now=BEGAN, block=1)
    silent.listen([notification], now=BEGAN + 1 + COMMAND_TIMEOUT)
    with pytest.raises(StoreUnavailable, match="no answer to a blocking pop"):
        silent.listen([notification], now=BEGAN + 1 + COMMAND_TIMEOUT + 0.001)


def test_a_forked_child_does_not_keep_the_connection_of_its_dead_parent_open(
    silent: BlockingListener, notification: str, client: Redis
) -> None:
    silent.listen([notification], now=BEGAN, block=3_600)
    until(lambda: listeners(client) == 1, what="the pop")
    child = os.fork()
    if not child:
        signal.pause()
        os._exit(0)
    try:
        # As if this process was killed: nothing is shut down.
        silent._connection._sock.close()
        until(lambda: listeners(client) == 0, what="the connection's end")
        client.rpush(notification, 1)
        assert client.llen(notification) == 1
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
