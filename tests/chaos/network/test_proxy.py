"""Tests of the proxy, with a real server: a fault without effect would make other tests meaningless."""

import random
import socket
import threading
from collections.abc import Iterator
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import pytest
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from django_delayq.conf.redis_settings import RedisConfig
from django_delayq.store.nodes.connections import Connections
from tests.chaos.network.proxy import Proxy
from tests.chaos.network.resp import RespSplitter, command_of
from tests.subprocesses import until


@pytest.fixture
def proxy(redis_url: str, client: Redis) -> Iterator[Proxy]:
    with Proxy(redis_url) as started:
        yield started


def through(proxy: Proxy, *, timeout: float = 30.0) -> Any:
    """Return a client as the package creates it, without retries and without commands of its own."""
    return Connections(RedisConfig.read(proxy.url)).producer(timeout=timeout)


def plain(proxy: Proxy) -> socket.socket:
    """Return a plain socket to the proxy."""
    where = urlsplit(proxy.url)
    return socket.create_connection((where.hostname, where.port), timeout=30)


class Switch:
    """Counts its calls, in the place of a kill."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def test_values_are_split_at_any_chunk_boundary() -> None:
    whole = [
        b"*2\r\n$4\r\nECHO\r\n$10\r\n\r\n*1\r\n$1\r\n\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"$-1\r\n",
        b"*3\r\n:1\r\n*2\r\n$0\r\n\r\n$-1\r\n*0\r\n",
        b"+PONG\r\n",
        b"-ERR no\r\n",
    ]
    stream = b"".join(whole)
    for seed in range(200):
        rng, values, found, at = random.Random(seed), RespSplitter(), [], 0
        while at < len(stream):
            size = rng.randint(1, 12)
            found += values.feed(stream[at : at + size])
            at += size
        assert found == whole
    assert RespSplitter().feed(stream) == whole


def test_request_is_named_by_its_first_word() -> None:
    assert command_of(b"*2\r\n$4\r\necho\r\n$1\r\nx\r\n") == "ECHO"
    assert command_of(b"*1\r\n$4\r\nPING\r\n") == command_of(b"PING now\r\n") == "PING"
    assert command_of(b"*3\r\n$7\r\nEVALSHA\r\n$4\r\nab12\r\n$1\r\n0\r\n") == "EVALSHA ab12"


def test_requests_and_replies_pass_and_are_counted(proxy: Proxy) -> None:
    with through(proxy) as behind:
        pipeline = behind.pipeline(transaction=False)
        for number in range(300):
            pipeline.set(f"key {number}", "x" * 1_000 * (number % 100))
        assert pipeline.execute() == [True] * 300
        assert behind.mget([f"key {number}" for number in range(300)])[99] == b"x" * 99_000
    assert proxy.requests == 301
    assert proxy.commands == ["SET"] * 300 + ["MGET"]


def test_cut_resets_every_connection_and_accepts_new_ones(proxy: Proxy) -> None:
    with plain(proxy) as one, plain(proxy) as other:
        for connection in (one, other):
            connection.sendall(b"PING\r\n")
            assert connection.recv(64) == b"+PONG\r\n"
        proxy.cut()
        for connection in (one, other):
            with pytest.raises(ConnectionResetError):
                connection.recv(64)
    with through(proxy) as behind:
        assert behind.ping()


def test_refuse_rejects_new_connections_and_keeps_old_ones(proxy: Proxy) -> None:
    with through(proxy) as behind, through(proxy) as late:
        assert behind.ping()
        proxy.refuse()
        assert behind.ping()
        with pytest.raises(ConnectionRefusedError):
            plain(proxy)
        proxy.accept()
        assert late.ping()


def test_hold_stops_old_and_new_connections_until_release(proxy: Proxy, client: Redis) -> None:
    with through(proxy, timeout=1) as behind, through(proxy, timeout=1) as late:
        assert behind.ping()
        proxy.hold()
        for held, name in ((behind, "old"), (late, "new")):
            with pytest.raises(RedisTimeoutError):
                held.set(name, 1)
        assert client.keys() == []
        proxy.release()
        # Requests whose sender has timed out arrive after all, as after a real network outage.
        until(lambda: client.dbsize() == 2, what="both requests")
        assert behind.ping()


def test_delay_applies_in_both_directions(proxy: Proxy) -> None:
    with through(proxy) as behind:
        assert behind.ping()
        proxy.delay(0.1, 0.05)
        started = monotonic()
        assert behind.ping()
        assert monotonic() - started >= 0.1
        proxy.restore()
        assert behind.ping()


def test_requests_run_although_their_replies_are_dropped(proxy: Proxy, client: Redis) -> None:
    with through(proxy) as behind:
        assert behind.ping()
        proxy.drop_replies()
        asking = threading.Thread(target=lambda: pytest.raises(RedisConnectionError, behind.set, "key", 1))
        asking.start()
        until(lambda: proxy.lost_replies, what="the reply to be dropped")
        assert client.get("key") == b"1"
        proxy.cut()
        asking.join()
        proxy.restore()
        assert behind.ping()


@pytest.mark.parametrize("size", [0, 1, 5, 8])
def test_reply_is_cut_at_exact_byte(proxy: Proxy, client: Redis, size: int) -> None:
    client.set("key", "value")
    with plain(proxy) as raw:
        proxy.cut_reply_after(size, of="GET")
        raw.sendall(b"PING\r\n")
        assert raw.recv(64) == b"+PONG\r\n"
        raw.sendall(b"GET key\r\n")
        seen = b""
        with pytest.raises(ConnectionResetError):
            while chunk := raw.recv(64):
                seen += chunk
        assert seen == b"$5\r\nvalue\r\n"[:size]
    with through(proxy) as behind:
        assert behind.get("key") == b"value"


def test_kill_before_request_prevents_it(proxy: Proxy, client: Redis) -> None:
    kill = Switch()
    with through(proxy) as behind, through(proxy) as other:
        assert behind.ping()
        proxy.kill_at(3, kill, after=False)
        behind.set("first", 1)
        other.set("second", 2)
        assert not proxy.killed.is_set()
        pipeline = behind.pipeline(transaction=False)
        for key in ("third", "fourth"):
            pipeline.set(key, 3)
        with pytest.raises(RedisConnectionError):
            pipeline.execute()
        assert proxy.killed.wait(10)
        assert other.ping()
    assert kill.count == 1
    assert sorted(client.keys()) == [b"first", b"second"]


def test_kill_after_request_drops_its_reply(proxy: Proxy, client: Redis) -> None:
    kill = Switch()
    with through(proxy) as behind:
        proxy.kill_at(2, kill, after=True)
        behind.set("first", 1)
        with pytest.raises(RedisConnectionError):
            behind.set("second", 2)
        assert proxy.killed.wait(10)
    assert kill.count == 1
    assert sorted(client.keys()) == [b"first", b"second"]


def test_kill_after_blocking_pop_waits_for_its_reply(proxy: Proxy, client: Redis) -> None:
    kill = Switch()
    with through(proxy) as behind, through(proxy) as other:
        proxy.kill_at(1, kill, after=True)
        popping = threading.Thread(target=lambda: pytest.raises(RedisConnectionError, behind.blpop, "notify", 60))
        popping.start()
        until(lambda: proxy.requests, what="the pop")
        assert other.ping()
        assert kill.count == 0
        client.rpush("notify", 1)
        popping.join()
        assert proxy.killed.wait(10)
    assert kill.count == 1
    assert client.llen("notify") == 0


def test_requests_are_counted_from_1(proxy: Proxy) -> None:
    with pytest.raises(ValueError, match="counts requests from 1, got 0"):
        proxy.kill_at(0, Switch(), after=True)


def test_proxy_connects_to_server_on_port(start_redis: Any) -> None:
    server = start_redis(port=0)
    with Proxy(server.url) as proxy, through(proxy) as behind:
        assert behind.ping()
        server.kill()
        with pytest.raises(RedisConnectionError):
            behind.ping()
        server.start()
        assert behind.ping()
