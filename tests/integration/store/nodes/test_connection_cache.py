"""Connection cache: one command at a time on a connection; a broken one, or one with unread replies, is not kept."""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from redis import exceptions as redis_errors

from django_delayq.conf.redis_settings import RedisConfig
from django_delayq.store.nodes.connection_cache import ConnectionCache
from django_delayq.store.nodes.connections import Connections
from django_delayq.store.nodes.resp import encode
from django_delayq.testing.local_redis import LocalRedisServer


@pytest.fixture
def server(start_redis: Callable[..., LocalRedisServer]) -> LocalRedisServer:
    return start_redis()


@pytest.fixture
def cache(server: LocalRedisServer) -> ConnectionCache:
    return ConnectionCache(Connections(RedisConfig.read(server.url)).client())


def execute_all(cache: ConnectionCache, *commands: Sequence[Any]) -> list[Any]:
    """Run commands in one round trip and return their replies."""
    return cache.send(b"".join(encode(*parts) for parts in commands)).read_all(len(commands))


def execute(cache: ConnectionCache, *parts: Any) -> Any:
    """Run one command and return its reply."""
    return execute_all(cache, parts)[0]


def names(cache: ConnectionCache) -> set[int]:
    """Send commands from eight threads at once, and return the ids of the connections that were used."""
    all_in = threading.Barrier(8)

    def ask(_: int) -> int:
        all_in.wait()
        return int(execute(cache, "CLIENT", "ID"))

    with ThreadPoolExecutor(8) as threads:
        return set(threads.map(ask, range(8)))


def test_a_connection_is_kept_for_the_next_command(cache: ConnectionCache) -> None:
    assert len({execute(cache, "CLIENT", "ID") for _ in range(5)}) == 1


def test_threads_share_connections_and_never_one_at_the_same_time(cache: ConnectionCache) -> None:
    def ask(number: int) -> bool:
        return all(execute(cache, "ECHO", f"{number}.{at}") == f"{number}.{at}".encode() for at in range(200))

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(ask, range(8)))
    assert 1 <= len(cache._idle) <= 8 and names(cache)


def test_an_error_of_the_server_leaves_the_connection_as_it_is(cache: ConnectionCache) -> None:
    before = execute(cache, "CLIENT", "ID")
    assert isinstance(execute(cache, "NO", "SUCH", "COMMAND"), redis_errors.ResponseError)
    assert execute(cache, "CLIENT", "ID") == before


def test_a_connection_that_the_server_closed_is_replaced(cache: ConnectionCache, server: LocalRedisServer) -> None:
    before = execute(cache, "CLIENT", "ID")
    with server.client() as other:
        other.client_kill_filter(_id=str(before))
    assert execute(cache, "CLIENT", "ID") != before


def test_the_same_cache_works_after_an_outage(cache: ConnectionCache, server: LocalRedisServer) -> None:
    execute(cache, "PING")
    server.kill()
    for _ in range(2):
        with pytest.raises(redis_errors.ConnectionError):
            execute(cache, "PING")
    server.start()
    assert execute(cache, "PING") and len(cache._idle) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError])
def test_an_unread_reply_is_never_the_reply_of_another_command(
    cache: ConnectionCache, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(cache, "PING")
    [connection] = cache._idle
    with monkeypatch.context() as patch:
        patch.setattr(connection, "read_response", raising(error))
        with pytest.raises(error):
            execute(cache, "ECHO", "the first")
    assert execute(cache, "ECHO", "the second") == b"the second"


def test_an_unexpected_message_of_the_server_is_never_a_reply(cache: ConnectionCache) -> None:
    execute(cache, "PING")
    [connection] = cache._idle
    # Like a reply that arrives after its caller has gone.
    connection.send_command("ECHO", "late")
    while not connection.can_read(timeout=1):
        pass
    assert execute(cache, "ECHO", "mine") == b"mine"


def test_if_connections_are_limited_none_is_kept(server: LocalRedisServer) -> None:
    path = server.url.removeprefix("unix://").partition("?")[0]
    client = Connections(RedisConfig.read({"unix_socket_path": path, "max_connections": 1})).client()
    cache = ConnectionCache(client)
    for _ in range(2):
        used = execute(cache, "CLIENT", "ID")
        assert client.execute_command("CLIENT", "ID") == used
        assert execute_all(cache, ["CLIENT", "ID"], ["PING"])[0] == used
        assert isinstance(execute(cache, "NO", "SUCH", "COMMAND"), redis_errors.ResponseError)


def test_disconnect_closes_idle_connections_and_the_next_command_connects_again(cache: ConnectionCache) -> None:
    before = {execute(cache, "CLIENT", "ID"), cache.client.client_id()}
    assert len(before) == 2
    cache.disconnect_idle()
    assert [each._sock for each in cache._idle] == [None]
    assert not before & {execute(cache, "CLIENT", "ID"), cache.client.client_id()}


def test_several_commands_get_their_replies_in_order(cache: ConnectionCache) -> None:
    numbers = [str(number).encode() for number in range(500)]
    assert execute_all(cache, *(("ECHO", number) for number in numbers)) == numbers
    assert execute(cache, "ECHO", "one") == b"one"


def test_an_error_among_several_leaves_no_reply_to_the_next_command(cache: ConnectionCache) -> None:
    first, error, third = execute_all(cache, ("ECHO", "first"), ("NO", "SUCH", "COMMAND"), ("ECHO", "third"))
    assert (first, third) == (b"first", b"third") and isinstance(error, redis_errors.ResponseError)
    assert execute(cache, "ECHO", "mine") == b"mine"
    assert len(cache._idle) == 1


def test_a_connection_whose_closing_is_interrupted_is_not_kept(
    cache: ConnectionCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(cache, "PING")
    [connection] = cache._idle
    with monkeypatch.context() as patch:
        patch.setattr(connection, "read_response", raising(TimeoutError))
        patch.setattr(connection, "disconnect", raising(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            execute(cache, "ECHO", "the first")
    assert execute(cache, "ECHO", "the second") == b"the second"
    assert connection not in cache._idle


def test_a_child_process_never_writes_to_its_parents_socket(cache: ConnectionCache) -> None:
    before = execute(cache, "CLIENT", "ID")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, str(execute(cache, "CLIENT", "ID")).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert int(os.read(read, 100)) != before and execute(cache, "CLIENT", "ID") == before
    os.close(read), os.close(write)


def raising(error: type[BaseException]) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


def test_a_child_process_never_reads_its_parents_reply(cache: ConnectionCache) -> None:
    question = cache.send(encode("ECHO", "the parent's"))
    child = os.fork()
    if child == 0:
        try:
            question.read_all(1)
        except redis_errors.ConnectionError:
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert question.read_all(1) == [b"the parent's"]
