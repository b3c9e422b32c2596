"""Redis in a bad state: calls while it is down, slow, full, read-only or loading."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_delayq import enqueue_many, get_job
from django_delayq.exceptions import (
    ScriptFault,
    StoreRejected,
    StoreUnavailable,
)
from django_delayq.job.job import State
from django_delayq.testing.local_redis import LocalRedisServer
from tests.integration.bad_input.refusals import SECRET
from tests.sample_app.tasks import noop
from tests.subprocesses import until


def test_an_enqueue_raises_while_redis_is_down(
    delayq_settings: Any, start_redis: Callable[..., LocalRedisServer]
) -> None:
    server = start_redis(port=0, options={"requirepass": SECRET})
    urls = [f"redis://:{SECRET}@127.0.0.1:{server.port}/0", f"unix://:{SECRET}@{server.socket}"]
    server.kill()
    for url in urls:
        delayq_settings.DELAYQ = {"REDIS": url}
        handle = noop.job(SECRET)
        with pytest.raises(StoreUnavailable) as caught:
            enqueue_many([handle])
        error = caught.value
        assert (error.maybe_accepted, error.retryable, error.accepted, list(error.unsent)) == (False, True, 0, [handle])
        assert SECRET not in str(error) + "".join(error.__notes__)
        assert handle.id in error.__notes__[0] and handle.state is State.UNSENT


@pytest.fixture
def mute_server() -> Iterator[int]:
    """The port of a server that accepts connections and requests, and never replies."""
    listener = socket.create_server(("127.0.0.1", 0))
    held: list[socket.socket] = []

    def accept() -> None:
        while True:
            try:
                held.append(listener.accept()[0])
            except OSError:
                return

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(30)
    for connection in held:
        connection.close()


def within_patience(act: Callable[[], Any]) -> BaseException | None:
    """Run `act` in a thread that must end; return what it raised."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "the caller waits forever"
    return raised[0] if raised else None


@pytest.mark.parametrize("scheme", ["redis", "rediss"])
def test_an_enqueue_raises_if_redis_does_not_reply(scheme: str, mute_server: int, delayq_settings: Any) -> None:
    url = (
        f"{scheme}://:{SECRET}@127.0.0.1:{mute_server}/0?ssl_cert_reqs=none"
        if scheme == "rediss"
        else (f"redis://127.0.0.1:{mute_server}/0")
    )
    delayq_settings.DELAYQ = {"REDIS": url, "ENQUEUE_TIMEOUT": 0.5}
    handle = noop.job()
    looks: list[Callable[[], Any]] = [lambda: enqueue_many([handle]), lambda: get_job(f"{'0' * 24}-0")]
    for act in looks:
        error = within_patience(act)
        assert isinstance(error, StoreUnavailable), error
        assert error.retryable and SECRET not in str(error)
    first = within_patience(looks[0])
    # A request without a reply may have taken effect; the same id makes a second try harmless.
    assert isinstance(first, StoreUnavailable) and first.maybe_accepted and list(first.unsent) == [handle]


def test_an_enqueue_raises_if_the_memory_of_redis_is_full(
    delayq_settings: Any, start_redis: Callable[..., LocalRedisServer]
) -> None:
    server = start_redis(options={"maxmemory": "1", "maxmemory-policy": "noeviction"})
    delayq_settings.DELAYQ = {"REDIS": server.url}
    rejected(server, "OOM")


def rejected(server: LocalRedisServer, code: str) -> None:
    """Check the errors of a server that refuses writes, for one job and for many, with the script loaded or not."""
    for _ in range(2):
        for act in (lambda: noop.enqueue(SECRET), lambda: noop.after(60).enqueue_many([(1,)] * 3)):
            with pytest.raises(StoreRejected, match="nothing was stored") as caught:
                act()
            error = caught.value
            assert (error.code, error.maybe_accepted, error.retryable) == (code, False, True)
            assert len(error.unsent) >= 1 and SECRET not in str(error)
    with server.client() as other:
        assert other.dbsize() == 0


def test_a_replica_refuses_an_enqueue(delayq_settings: Any, start_redis: Callable[..., LocalRedisServer]) -> None:
    main, replica = start_redis(port=0), start_redis(port=0)
    with replica.client() as other:
        other.replicaof("127.0.0.1", main.port)
        delayq_settings.DELAYQ = {"REDIS": replica.url}
        rejected(replica, "READONLY")


def test_a_server_that_cannot_save_refuses_an_enqueue(
    delayq_settings: Any, start_redis: Callable[..., LocalRedisServer]
) -> None:
    server = start_redis(options={"save": "3600 1", "stop-writes-on-bgsave-error": "yes"})
    with server.client() as other:
        # A folder in place of the file makes every save fail.
        os.mkdir(server.folder / "dump.rdb")
        other.set("a", 1)
        other.bgsave()
        until(lambda: other.info("persistence")["rdb_last_bgsave_status"] == "err", what="the failed snapshot")
        other.config_set("save", "3600 1")
    delayq_settings.DELAYQ = {"REDIS": server.url}
    with pytest.raises(StoreRejected) as caught:
        noop.enqueue()
    assert (caught.value.code, caught.value.maybe_accepted) == ("MISCONF", False)


def test_a_server_with_too_few_replicas_refuses_an_enqueue(
    delayq_settings: Any, start_redis: Callable[..., LocalRedisServer]
) -> None:
    server = start_redis(options={"min-replicas-to-write": "1"})
    delayq_settings.DELAYQ = {"REDIS": server.url}
    rejected(server, "NOREPLICAS")


def test_a_busy_server_is_unavailable(delayq_settings: Any, start_redis: Callable[..., LocalRedisServer]) -> None:
    server = start_redis()
    delayq_settings.DELAYQ = {"REDIS": server.url}
    with server.client() as other:
        # During a long script the server replies BUSY, as it replies LOADING while it loads.
        other.config_set("lua-time-limit" if other.info("server")["redis_version"] < "7" else "busy-reply-threshold", 1)
        thread = threading.Thread(target=lambda: within_patience(lambda: other.eval("while true do end", 0)))
        thread.start()
        found: list[StoreUnavailable] = []

        def busy() -> bool:
            try:
                noop.enqueue()
            except StoreUnavailable as error:
                found.append(error)
            return bool(found)

        until(busy, what="the script to run")
        with server.client() as third:
            third.script_kill()
        thread.join(30)
    [error] = found
    assert error.retryable and "BUSY" in str(error).upper() and not error.maybe_accepted


def test_a_setting_of_another_form_than_the_server_is_named(
    delayq_settings: Any, start_redis: Callable[..., LocalRedisServer]
) -> None:
    address = f"127.0.0.1:{start_redis(port=0).port}"
    for setting, cure in (
        (f"redis+cluster://{address}", "use redis:// in place of redis\\+cluster://"),
        ({"sentinels": [address], "service": "mymaster"}, "'sentinels' names a server that is no Sentinel"),
    ):
        delayq_settings.DELAYQ = {"REDIS": setting}
        with pytest.raises(ScriptFault, match=cure):
            noop.enqueue()


def test_sentinels_that_do_not_answer_are_named_by_their_errors(delayq_settings: Any) -> None:
    # Sockets that do not listen refuse connections, and nobody else gets their ports.
    with socket.socket() as one, socket.socket() as other:
        for deaf in (one, other):
            deaf.bind(("127.0.0.1", 0))
        sentinels = [f"127.0.0.1:{deaf.getsockname()[1]}" for deaf in (one, other)]
        delayq_settings.DELAYQ = {"REDIS": {"sentinels": sentinels, "service": "mymaster"}}
        with pytest.raises(StoreUnavailable, match="No master found for 'mymaster'") as caught:
            noop.enqueue()
    text = str(caught.value)
    assert all(address in text for address in sentinels) and "ConnectionError" in text and "<redis" not in text
