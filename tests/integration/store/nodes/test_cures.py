"""Cures: an error of a connection names the cure of its cause, whatever is at the address."""

import socket
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import redis

from django_delayq import get_store
from django_delayq.exceptions import StoreAuthError, StoreError, StoreUnavailable, see
from django_delayq.store.nodes.pools.own_pool import OwnPool
from django_delayq.testing.local_redis import LocalRedisServer
from tests.sample_app.tasks import noop
from tests.servers.certificates import Certificates
from tests.servers.tls_ports import start_with_tls

NO_ANSWER = see("troubleshooting#redis-does-not-answer")


@pytest.fixture(scope="module")
def tls(certificates: Certificates, tls_program: Path) -> Iterator[int]:
    """The port of a server with TLS that wants no certificate from its clients."""
    options = {**certificates.server_options, "tls-auth-clients": "no"}
    server, port = start_with_tls(
        lambda port: LocalRedisServer(server=tls_program, options={**options, "tls-port": str(port)})
    )
    with server:
        yield port


@pytest.fixture
def tcp(start_redis: Callable[..., LocalRedisServer]) -> LocalRedisServer:
    """A server with a port."""
    return start_redis(port=0)


@pytest.fixture
def http_port() -> Iterator[int]:
    """The port of an HTTP server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.fixture
def own_address() -> str:
    """An address of this machine that is not that of the loopback interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Connecting a datagram socket sends nothing.
            probe.connect(("198.51.100.1", 9))
        except OSError as error:
            pytest.skip(f"this machine has no network, so no other address: {error}")
        return str(probe.getsockname()[0])


def refusal(settings: Any, form: Any, **options: Any) -> StoreError:
    """Return the error of an enqueue with a form of the setting."""
    settings.DELAYQ = {"REDIS": form, **options}
    with pytest.raises(StoreError) as caught:
        noop.enqueue()
    return caught.value


def is_unavailable(error: StoreError, *words: str) -> None:
    """The error has the words, only a server that may be started is to be started, and a page has its table."""
    text = str(error)
    assert type(error) is StoreUnavailable and text.endswith(NO_ANSWER)
    assert [word for word in words if word not in text] == [] and "start it" not in text, text


def test_a_pool_without_a_free_connection(tcp: LocalRedisServer, settings: Any) -> None:
    settings.DELAYQ = {"REDIS": {"host": "127.0.0.1", "port": tcp.port, "max_connections": 1}}
    pool = get_store().shards[0].route.node.producers.client.connection_pool
    taken = pool.get_connection()
    with pytest.raises(StoreUnavailable) as caught:
        noop.enqueue()
    pool.release(taken)
    is_unavailable(caught.value, "No connection to Redis is free", "raise max_connections in REDIS")
    assert not caught.value.maybe_accepted


@pytest.mark.parametrize("database", [0, 1], ids=["no command first", "a command first"])
def test_a_server_with_too_many_clients(
    database: int, start_redis: Callable[..., LocalRedisServer], settings: Any
) -> None:
    server = start_redis(port=0, options={"maxclients": "1"})
    with server.client() as only:
        only.ping()
        error = refusal(settings, f"redis://127.0.0.1:{server.port}/{database}")
    is_unavailable(error, "max number of clients reached", "raise maxclients of the server")
    assert not error.maybe_accepted


def test_the_reason_of_a_refused_connection_is_kept(start_redis: Callable[..., LocalRedisServer]) -> None:
    server = start_redis(port=0, options={"maxclients": "1"})

    def hear(connection: Any) -> None:
        # Then the library finds the reason before the first command, and takes it for an old reply.
        connection._parser.on_connect(connection)
        assert connection.can_read(timeout=60)

    pool = OwnPool(host="127.0.0.1", port=server.port, protocol=2, redis_connect_func=hear)
    with server.client() as only:
        only.ping()
        with pytest.raises(redis.ConnectionError, match="^max number of clients reached$"):
            pool.get_connection()
    pool.disconnect()


def test_a_server_in_protected_mode(tcp: LocalRedisServer, own_address: str, settings: Any) -> None:
    with tcp.client() as admin:
        admin.config_set("bind", f"127.0.0.1 {own_address}")
        admin.config_set("protected-mode", "yes")
        error = refusal(settings, f"redis://{own_address}:{tcp.port}/0")
        assert admin.dbsize() == 0
    assert type(error) is StoreAuthError and not error.maybe_accepted and not error.retryable
    assert "protected mode" in str(error) and "set requirepass" in str(error)
    assert str(error).endswith(see("troubleshooting#redis-refuses-the-password"))


def test_a_certificate_of_an_unknown_authority(tls: int, settings: Any) -> None:
    error = refusal(settings, f"rediss://127.0.0.1:{tls}/0")
    is_unavailable(error, "CERTIFICATE_VERIFY_FAILED", "ssl_ca_certs", "ssl_cert_reqs")
    assert not error.maybe_accepted
    # That cure helps.
    settings.DELAYQ = {"REDIS": f"rediss://127.0.0.1:{tls}/0?ssl_cert_reqs=none&ssl_check_hostname=False"}
    assert noop.after(60).enqueue().cancel()


def test_a_certificate_of_another_host(tls: int, certificates: Certificates, settings: Any) -> None:
    form = {"host": "127.1", "port": tls, "ssl": True, "ssl_check_hostname": True, **certificates.authority}
    is_unavailable(refusal(settings, form), "mismatch", "use the host that the certificate of the server names")


def test_a_url_without_tls_of_a_port_with_tls(tls: int, settings: Any) -> None:
    is_unavailable(refusal(settings, f"redis://127.0.0.1:{tls}/0"), "Redis restarts, or REDIS is wrong", "rediss://")


def test_a_url_with_tls_of_a_port_without_tls(tcp: LocalRedisServer, settings: Any) -> None:
    error = refusal(settings, f"rediss://127.0.0.1:{tcp.port}/0", ENQUEUE_TIMEOUT=1)
    is_unavailable(error, "use redis:// if this port has no TLS")


def test_an_error_that_the_caller_handles_is_no_cause(http_port: int, settings: Any) -> None:
    # It accepts connections, and answers no command of Redis.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        try:
            open("/nonexistent").close()
        except FileNotFoundError:
            error = refusal(settings, f"redis://127.0.0.1:{silent.getsockname()[1]}/0", ENQUEUE_TIMEOUT=1)
    # Not that of a missing socket of Redis, with which nothing was sent.
    assert "path of the socket" not in str(error) and error.maybe_accepted


def test_an_http_server(http_port: int, settings: Any) -> None:
    is_unavailable(refusal(settings, f"redis://127.0.0.1:{http_port}/0"), "Redis restarts, or REDIS is wrong", "port")
    is_unavailable(refusal(settings, f"rediss://127.0.0.1:{http_port}/0"), "WRONG_VERSION", "use redis://")


def test_a_host_that_does_not_exist(settings: Any) -> None:
    is_unavailable(refusal(settings, "redis://no-such-host.invalid:6379/0"), "correct the host in REDIS")


def test_only_a_refused_connection_says_to_start_it(settings: Any) -> None:
    # A socket that does not listen refuses connections, and nobody else gets its port.
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        for form in (f"redis://127.0.0.1:{deaf.getsockname()[1]}/0", "unix:///nowhere/redis.sock"):
            assert "start it, or correct" in str(refusal(settings, form))
