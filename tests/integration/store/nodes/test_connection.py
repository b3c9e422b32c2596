"""Connections: every form of the REDIS setting connects to a real server, with the package's timeouts and pools."""

from collections.abc import Callable
from typing import Any

import pytest
import redis
from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured
from redis import Redis

from django_delayq import get_job, get_store
from django_delayq.conf.redis_settings import RedisConfig
from django_delayq.exceptions import StoreAuthError, StoreUnavailable
from django_delayq.job.job import State
from django_delayq.store.nodes.connection_cache import ConnectionCache
from django_delayq.store.nodes.connections import Connections
from django_delayq.store.nodes.errors import to_store_error
from django_delayq.store.nodes.resp import encode
from django_delayq.testing.local_redis import LocalRedisServer
from tests.sample_app.tasks import noop
from tests.subprocesses import until

CANARY = "s3cret-canary"


@pytest.fixture
def tcp(start_redis: Callable[..., LocalRedisServer]) -> LocalRedisServer:
    """A server with a port and a password."""
    return start_redis(port=0, options={"requirepass": CANARY})


def arrives(settings: Any, form: Any, *, database: int = 0, **server: Any) -> None:
    """Enqueue a job with a form of the setting, and find it in the expected database."""
    settings.DELAYQ = {"REDIS": form}
    handle = noop.after(60).enqueue("ü")
    assert handle.state is State.SCHEDULED
    found = get_job(handle.id)
    assert found and found.job and found.job.args == ["ü"]
    with Redis(db=database, password=CANARY, **server) as other:
        assert other.zcard("delayq:{0}:scheduled:default") == 1
    assert handle.cancel()


def test_a_url_connects(tcp: LocalRedisServer, settings: Any) -> None:
    arrives(settings, f"redis://:{CANARY}@127.0.0.1:{tcp.port}/0", port=tcp.port)
    arrives(settings, f"redis://default:{CANARY}@127.0.0.1:{tcp.port}/3", port=tcp.port, database=3)
    arrives(settings, f"valkey://:{CANARY}@127.0.0.1:{tcp.port}/1", port=tcp.port, database=1)


def test_a_url_with_parameters_connects(tcp: LocalRedisServer, settings: Any) -> None:
    arrives(settings, {"url": f"redis://127.0.0.1:{tcp.port}/2", "password": CANARY}, port=tcp.port, database=2)


def test_parameters_connect(tcp: LocalRedisServer, settings: Any) -> None:
    form = {"host": "127.0.0.1", "port": tcp.port, "password": CANARY, "db": 4, "client_name": "shop"}
    arrives(settings, form, port=tcp.port, database=4)


def test_parameters_as_text_from_the_environment_connect(tcp: LocalRedisServer, settings: Any) -> None:
    form = {"host": "127.0.0.1", "port": str(tcp.port), "password": CANARY, "db": "1"}
    arrives(settings, form, port=tcp.port, database=1)


def test_a_unix_socket_connects(tcp: LocalRedisServer, settings: Any) -> None:
    path = str(tcp.socket)
    arrives(settings, f"unix://:{CANARY}@{path}?db=5", unix_socket_path=path, database=5)
    arrives(settings, {"unix_socket_path": path, "password": CANARY}, unix_socket_path=path)


def cache(backend: str, location: Any, **options: Any) -> dict[str, Any]:
    return {"default": {"BACKEND": backend, "LOCATION": location, "KEY_PREFIX": "shop", "OPTIONS": options}}


def test_an_alias_of_django_redis_connects(tcp: LocalRedisServer, settings: Any) -> None:
    settings.CACHES = cache(
        "django_redis.cache.RedisCache",
        f"redis://127.0.0.1:{tcp.port}/6",
        PASSWORD=CANARY,
        SOCKET_TIMEOUT=0.000_001,
        CONNECTION_POOL_KWARGS={"max_connections": 5, "decode_responses": True, "health_check_interval": 1},
        SERIALIZER="django_redis.serializers.json.JSONSerializer",
        PARSER_CLASS="redis.connection.DefaultParser",
    )
    arrives(settings, "default", port=tcp.port, database=6)


def test_an_alias_of_djangos_own_redis_cache_connects(tcp: LocalRedisServer, settings: Any) -> None:
    location = [f"redis://:{CANARY}@127.0.0.1:{tcp.port}", f"redis://:{CANARY}@127.0.0.1:1"]
    settings.CACHES = cache("django.core.cache.backends.redis.RedisCache", location, db=7)
    arrives(settings, "default", port=tcp.port, database=7)


def test_the_pool_of_the_cache_is_not_used(tcp: LocalRedisServer, settings: Any) -> None:
    url = f"redis://:{CANARY}@127.0.0.1:{tcp.port}/0"
    settings.CACHES = cache("django_redis.cache.RedisCache", url)
    caches["default"].set("a", 1)
    theirs = caches["default"].client.get_client().connection_pool
    settings.DELAYQ = {"REDIS": "default"}
    noop.enqueue()
    assert get_store().shards[0].client.connection_pool is not theirs
    assert caches["default"].get("a") == 1
    # This shows why the cache needs a database of its own: clearing the cache deletes jobs in the same database.
    caches["default"].close()


@pytest.mark.parametrize("made_of", ["url", "parameters", "client", "decoding client", "alias"])
def test_a_callable_connects(made_of: str, tcp: LocalRedisServer, settings: Any) -> None:
    url = f"redis://:{CANARY}@127.0.0.1:{tcp.port}/0"
    settings.CACHES = cache("django_redis.cache.RedisCache", url)
    clients: list[Redis] = []

    def connect() -> Any:
        match made_of:
            case "url":
                return url
            case "parameters":
                return {"host": "127.0.0.1", "port": tcp.port, "password": CANARY}
            case "alias":
                return "default"
        clients.append(Redis.from_url(url, decode_responses=made_of == "decoding client", protocol=3))
        return clients[-1]

    try:
        arrives(settings, connect, port=tcp.port)
    finally:
        for client in clients:
            client.close()


def test_a_new_store_calls_a_callable_again(tcp: LocalRedisServer, settings: Any) -> None:
    calls: list[int] = []

    def connect() -> str:
        calls.append(1)
        return f"redis://:{CANARY}@127.0.0.1:{tcp.port}/0"

    settings.DELAYQ = {"REDIS": connect}
    assert calls == []
    noop.enqueue()
    before = len(calls)
    noop.enqueue()
    assert len(calls) == before > 0
    settings.DELAYQ = {"REDIS": connect, "LEASE": 5}
    noop.enqueue()
    assert len(calls) > before


@pytest.mark.parametrize("answer", [None, 5, "nowhere", "http://x", {"hots": "x"}, f":{CANARY}@h"])
def test_a_callable_that_returns_nonsense_is_a_clear_error(answer: Any, settings: Any) -> None:
    settings.DELAYQ = {"REDIS": lambda: answer}
    with pytest.raises(ImproperlyConfigured, match="REDIS") as caught:
        noop.enqueue()
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    "query", ["decode_responses=True", "protocol=3", "socket_timeout=0.000001", "health_check_interval=1"]
)
def test_options_of_a_url_that_the_package_sets_are_overridden(
    query: str, tcp: LocalRedisServer, settings: Any
) -> None:
    arrives(settings, f"redis://:{CANARY}@127.0.0.1:{tcp.port}/0?{query}", port=tcp.port)


def test_connections_have_timeouts_and_no_silent_retries(tcp: LocalRedisServer, settings: Any) -> None:
    settings.DELAYQ = {"REDIS": f"redis://:{CANARY}@127.0.0.1:{tcp.port}/0", "ENQUEUE_TIMEOUT": 0.5}
    store = get_store()
    for shards, seconds in ((store.shards, 5.0), (store._producer_shards, 0.5)):
        given = shards[0].client.connection_pool.connection_kwargs
        # All steps of a producer's call share these timeouts; test_deadline.py tests that.
        assert given["socket_connect_timeout"] == given["socket_timeout"] == seconds
        assert given["retry"]._retries == 0 and given["protocol"] == 2


def test_no_connection_opens_before_the_first_use(tcp: LocalRedisServer, settings: Any) -> None:
    settings.DELAYQ = {"REDIS": f"redis://:{CANARY}@127.0.0.1:{tcp.port}/0"}
    with tcp.client(password=CANARY) as other:
        before = other.info("stats")["total_connections_received"]
        store = get_store()
        store.enqueue_api(0), store.operations(0), store.lookup(0), store.shards[0].blocking_listener()
        assert other.info("stats")["total_connections_received"] == before


def test_changed_settings_close_the_connections_of_the_earlier_store(
    start_redis: Callable[..., LocalRedisServer], settings: Any
) -> None:
    server = start_redis()
    settings.DELAYQ = {"REDIS": server.url}
    earlier = get_store()
    # A command of a producer, and one of a worker.
    noop.after(60).enqueue()
    assert earlier.shards[0].execute("PING") == b"PONG"
    settings.DELAYQ = {"REDIS": server.url, "PREFIX": "other"}
    with server.client() as client:
        until(lambda: len(client.client_list()) == 1, what="the connections to close")
    # It connects again where it is still used.
    assert earlier.shards[0].execute("PING") == b"PONG"
    earlier.disconnect_idle()


def test_after_a_restart_of_the_server_the_next_call_reconnects(
    start_redis: Callable[..., LocalRedisServer], settings: Any
) -> None:
    server = start_redis()
    settings.DELAYQ = {"REDIS": server.url}
    noop.enqueue()
    server.restart()
    states = []
    for _ in range(3):
        try:
            states.append(noop.enqueue().state)
        except StoreUnavailable as error:
            # The connection ended; Redis may have the job. Its id makes a second try harmless.
            assert error.maybe_accepted
            error.resend()
    assert states and set(states) == {State.READY}


def test_a_call_without_a_free_connection_is_certainly_not_sent(redis_server: LocalRedisServer) -> None:
    connections = Connections(RedisConfig.read({"url": redis_server.url, "max_connections": 1}))
    client = connections.client()
    client.connection_pool.get_connection()
    with pytest.raises(redis.ConnectionError) as caught:
        ConnectionCache(client).send(encode("PING"))
    error = to_store_error(caught.value)
    assert isinstance(error, StoreUnavailable) and not error.maybe_accepted


def test_a_wrong_password_is_another_error_than_an_outage(tcp: LocalRedisServer, settings: Any) -> None:
    settings.DELAYQ = {"REDIS": f"redis://:wrong-{CANARY}@127.0.0.1:{tcp.port}/0"}
    with pytest.raises(StoreAuthError) as caught:
        noop.enqueue()
    assert CANARY not in str(caught.value) and not caught.value.retryable


def test_the_client_library_is_recent_enough() -> None:
    assert int(redis.__version__.split(".")[0]) >= 6
