"""Line: one connection a call at a time, kept for the next; a broken or dirty one is never used again as it is."""

import contextlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from redis import exceptions as redis_errors

from django_delayq.conf.redis_settings import RedisConfig
from django_delayq.store.client.connection import Connections
from django_delayq.store.client.connection_cache import ConnectionCache
from django_delayq.store.client.resp import encode
from django_delayq.testing.local_redis import LocalRedisServer


@pytest.fixture
def server(start_redis: Callable[..., LocalRedisServer]) -> LocalRedisServer:
    return start_redis()


@pytest.fixture
def line(server: LocalRedisServer) -> ConnectionCache:
    return ConnectionCache(Connections(RedisConfig.read(server.url)).client())


def names(line: ConnectionCache) -> set[int]:
    """Ask from eight threads at once, and return the numbers of the connections that were used."""
    all_in = threading.Barrier(8)

    def ask(_: int) -> int:
        all_in.wait()
        return int(line.execute("CLIENT", "ID"))

    with ThreadPoolExecutor(8) as threads:
        return set(threads.map(ask, range(8)))


def test_a_connection_is_kept_for_the_next_command(line: ConnectionCache) -> None:
    assert len({line.execute("CLIENT", "ID") for _ in range(5)}) == 1


def test_threads_share_connections_and_never_one_at_the_same_time(line: ConnectionCache) -> None:
    def ask(number: int) -> bool:
        return all(line.execute("ECHO", f"{number}.{at}") == f"{number}.{at}".encode() for at in range(200))

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(ask, range(8)))
    assert 1 <= len(line._idle) <= 8 and names(line)


def test_an_error_of_the_server_leaves_the_connection_as_it_is(line: ConnectionCache) -> None:
    before = line.execute("CLIENT", "ID")
    with pytest.raises(redis_errors.ResponseError):
        line.execute("NO", "SUCH", "COMMAND")
    assert line.execute("CLIENT", "ID") == before


def test_a_connection_that_the_server_closed_meanwhile_is_made_anew(
    line: ConnectionCache, server: LocalRedisServer
) -> None:
    before = line.execute("CLIENT", "ID")
    with server.client() as other:
        other.client_kill_filter(_id=str(before))
    assert line.execute("CLIENT", "ID") != before


def test_after_an_outage_the_same_line_works(line: ConnectionCache, server: LocalRedisServer) -> None:
    line.execute("PING")
    server.kill()
    for _ in range(2):
        with pytest.raises(redis_errors.ConnectionError):
            line.execute("PING")
    server.start()
    assert line.execute("PING") and len(line._idle) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError])
def test_an_answer_that_nobody_read_is_never_anothers(
    line: ConnectionCache, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    line.execute("PING")
    [connection] = line._idle
    with monkeypatch.context() as patch:
        patch.setattr(connection, "read_response", raising(error))
        with pytest.raises(error):
            line.execute("ECHO", "the first")
    assert line.execute("ECHO", "the second") == b"the second"


def test_what_the_server_says_unasked_is_never_an_answer(line: ConnectionCache) -> None:
    line.execute("PING")
    [connection] = line._idle
    # What a reply is that comes after its caller has gone.
    connection.send_command("ECHO", "late")
    while not connection.can_read(timeout=1):
        pass
    assert line.execute("ECHO", "mine") == b"mine"


def test_where_connections_are_limited_none_is_kept_from_other_commands(server: LocalRedisServer) -> None:
    path = server.url.removeprefix("unix://").partition("?")[0]
    client = Connections(RedisConfig.read({"unix_socket_path": path, "max_connections": 1})).client()
    line = ConnectionCache(client)
    for _ in range(2):
        used = line.execute("CLIENT", "ID")
        assert client.execute_command("CLIENT", "ID") == used
        assert line.execute_all(["CLIENT", "ID"], ["PING"])[0] == used
        with pytest.raises(redis_errors.ResponseError):
            line.execute("NO", "SUCH", "COMMAND")


def test_hanging_up_closes_what_is_idle_and_the_next_command_connects_anew(line: ConnectionCache) -> None:
    before = {line.execute("CLIENT", "ID"), line.client.client_id()}
    assert len(before) == 2
    line.disconnect_idle()
    assert [each._sock for each in line._idle] == [None]
    assert not before & {line.execute("CLIENT", "ID"), line.client.client_id()}


def test_several_commands_are_answered_in_their_order(line: ConnectionCache) -> None:
    numbers = [str(number).encode() for number in range(500)]
    assert line.execute_all(*(("ECHO", number) for number in numbers)) == numbers
    assert line.execute("ECHO", "one") == b"one"


def test_an_error_among_several_leaves_no_answer_to_the_next(line: ConnectionCache) -> None:
    with pytest.raises(redis_errors.ResponseError):
        line.execute_all(("ECHO", "first"), ("NO", "SUCH", "COMMAND"), ("ECHO", "third"))
    assert line.execute("ECHO", "mine") == b"mine"
    assert len(line._idle) == 1


def test_one_whose_end_is_interrupted_is_kept_by_nobody(line: ConnectionCache, monkeypatch: pytest.MonkeyPatch) -> None:
    line.execute("PING")
    [connection] = line._idle
    with monkeypatch.context() as patch:
        patch.setattr(connection, "read_response", raising(TimeoutError))
        patch.setattr(connection, "disconnect", raising(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            line.execute("ECHO", "the first")
    assert line.execute("ECHO", "the second") == b"the second"
    assert connection not in line._idle


def test_a_child_process_never_writes_to_its_parents_socket(line: ConnectionCache) -> None:
    before = line.execute("CLIENT", "ID")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, str(line.execute("CLIENT", "ID")).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert int(os.read(read, 100)) != before and line.execute("CLIENT", "ID") == before
    os.close(read), os.close(write)


def raising(error: type[BaseException]) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


def test_a_child_process_never_reads_its_parents_answer(line: ConnectionCache) -> None:
    question = line.send(encode("ECHO", "the parent's"))
    child = os.fork()
    if child == 0:
        with contextlib.suppress(redis_errors.ConnectionError):
            question.read()
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert question.read() == b"the parent's"
