"""The waker on a real server: it hears a bell, and gives a connection up that stays silent beyond its pop."""

import os
import select
import signal
from collections.abc import Iterator
from contextlib import closing

import pytest
from redis import Redis

from django_delayq.exceptions import StoreUnavailable
from django_delayq.store.client.blocking_listener import BLOCK, BlockingListener
from django_delayq.store.client.connection import COMMAND_TIMEOUT
from django_delayq.store.client.resp import encode
from tests.shard_apis import ShardApis
from tests.subprocesses import listeners, until

#: Seconds until a readable socket is given up.
PATIENCE = 30.0
#: The moment of the first pop, and the last at which its silence is in order.
BEGAN = 1_000.0
LAST = BEGAN + BLOCK + COMMAND_TIMEOUT


@pytest.fixture
def bell(apis: ShardApis) -> str:
    """The key it listens to."""
    return apis.keys.notify("default")


@pytest.fixture
def silent(apis: ShardApis) -> Iterator[BlockingListener]:
    """A waker that does not listen yet, of a server that knows the script that jobs come by."""
    apis.add(queue="mail")
    with closing(apis.shard.blocking_listener()) as made:
        yield made


@pytest.fixture
def waker(silent: BlockingListener, bell: str) -> BlockingListener:
    """A waker that listens since BEGAN."""
    silent.listen([bell], now=BEGAN)
    return silent


def test_a_bell_is_heard(waker: BlockingListener, bell: str, client: Redis) -> None:
    client.rpush(bell, 1)
    assert select.select([waker], [], [], PATIENCE)[0]
    assert waker.read_notification() == bell


def test_one_that_is_silent_for_longer_than_its_pop_and_an_answer_take_is_made_anew(
    waker: BlockingListener, bell: str, client: Redis
) -> None:
    waker.listen([bell], now=LAST)
    with pytest.raises(StoreUnavailable, match="no answer to a blocking pop"):
        waker.listen([bell], now=LAST + 0.001)
    assert waker.fileno() == -1
    waker.listen([bell], now=LAST + 1)
    # The server may not know yet that the first one is gone, and ring for it.
    until(lambda: client.rpush(bell, 1) and select.select([waker], [], [], 0)[0], what="a bell")
    assert waker.read_notification() == bell


def test_silence_is_counted_from_the_latest_pop(waker: BlockingListener, bell: str, client: Redis) -> None:
    client.rpush(bell, 1)
    assert select.select([waker], [], [], PATIENCE)[0]
    waker.read_notification()
    waker.listen([bell], now=LAST)
    waker.listen([bell], now=LAST + BLOCK)
    assert waker.fileno() != -1


def test_a_call_behind_the_pop_is_carried_out_when_the_bell_rings(
    apis: ShardApis, waker: BlockingListener, bell: str, client: Redis
) -> None:
    call = apis.intake.prepare([apis.draft()])._call
    waker.send_chained(call)
    until(lambda: listeners(client) == 1, what="the pop")
    assert apis.ready() == {}
    client.rpush(bell, 1)
    assert select.select([waker], [], [], PATIENCE)[0]
    assert len(apis.ready()) == 1
    assert waker.read_notification() == bell
    assert call.result()[0] == apis.clock.now_us


def test_a_call_behind_the_pop_is_carried_out_when_the_pop_ends_empty(
    apis: ShardApis, silent: BlockingListener, bell: str
) -> None:
    silent.listen([bell], now=BEGAN, block=0.05)
    call = apis.intake.prepare([apis.draft()])._call
    silent.send_chained(call)
    assert select.select([silent], [], [], PATIENCE)[0]
    assert silent.read_notification() is None
    assert call.result() and len(apis.ready()) == 1


def test_a_call_behind_the_pop_of_a_connection_that_ends_is_not_carried_out(
    apis: ShardApis, waker: BlockingListener, bell: str, client: Redis
) -> None:
    waker.send_chained(apis.intake.prepare([apis.draft()])._call)
    until(lambda: listeners(client) == 1, what="the pop")
    waker.close()
    until(lambda: listeners(client) == 0, what="its end")
    client.rpush(bell, 1)
    assert apis.ready() == {}
    assert client.llen(bell) == 1


def test_an_answer_that_nobody_waits_for_is_not_taken_for_a_bell(
    waker: BlockingListener, bell: str, client: Redis
) -> None:
    for _ in range(2):
        client.rpush(bell, 1)
        assert select.select([waker], [], [], PATIENCE)[0]
        assert waker.read_notification() == bell
        waker.send_without_reply(encode("SREM", "nothing", "there"))
        waker.listen([bell], now=BEGAN)
        assert not select.select([waker], [], [], 0)[0]


@pytest.mark.parametrize("closed", [True, False])
def test_on_a_connection_that_was_closed_nothing_is_sent(
    apis: ShardApis, waker: BlockingListener, closed: bool
) -> None:
    if closed:
        waker.close()
    else:
        waker._connection.disconnect()
    with pytest.raises(StoreUnavailable, match="was closed"):
        waker.send_without_reply(encode("PING"))
    assert waker.fileno() == -1


def test_silence_is_counted_from_how_long_the_pop_may_block(silent: BlockingListener, bell: str) -> None:
    silent.listen([bell], now=BEGAN, block=1)
    silent.listen([bell], now=BEGAN + 1 + COMMAND_TIMEOUT)
    with pytest.raises(StoreUnavailable, match="no answer to a blocking pop"):
        silent.listen([bell], now=BEGAN + 1 + COMMAND_TIMEOUT + 0.001)


def test_a_process_that_was_forked_does_not_keep_the_connection_of_a_dead_one(
    silent: BlockingListener, bell: str, client: Redis
) -> None:
    silent.listen([bell], now=BEGAN, block=3_600)
    until(lambda: listeners(client) == 1, what="the pop")
    child = os.fork()
    if not child:
        signal.pause()
        os._exit(0)
    try:
        # As where this process is killed: nothing is shut down.
        silent._connection._sock.close()
        until(lambda: listeners(client) == 0, what="the connection's end")
        client.rpush(bell, 1)
        assert client.llen(bell) == 1
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
