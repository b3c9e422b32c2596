"""Aliases of CACHES: a value that the cache stores and a job that the queue stores are in the same database."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import caches
from django_redis.pool import ConnectionFactory
from redis import CredentialProvider

from django_delayq import get_store
from django_delayq.exceptions import StoreUnavailable
from django_delayq.job.job import State
from django_delayq.testing.local_redis import LocalRedisServer
from tests.sample_app.tasks import noop
from tests.servers.local_cluster import LocalCluster
from tests.servers.sentinel_group import SERVICE, SentinelGroup
from tests.subprocesses import until

CANARY = "s3cret-canary"
DJANGO_REDIS, DJANGO = "django_redis.cache.RedisCache", "django.core.cache.backends.redis.RedisCache"


class AskedUser(CredentialProvider):
    """Names the user at each new connection."""

    def get_credentials(self) -> tuple[str, str]:
        return "shop", CANARY


class FromVault(ConnectionFactory):
    """Calls a function for the password."""

    def make_connection_params(self, url: str) -> Any:
        return super().make_connection_params(url) | {"username": "shop", "password": self.options["VAULT"]()}


@pytest.fixture(scope="module")
def server(server_program: Path) -> Iterator[LocalRedisServer]:
    """A server with a port, and a user `shop` with a password; others are refused."""
    with LocalRedisServer(server=server_program, port=0) as started:
        with started.client() as admin:
            admin.execute_command("ACL", "SETUSER", "shop", "on", f">{CANARY}", "~*", "&*", "+@all")
            admin.execute_command("ACL", "SETUSER", "default", "off")
        yield started


def meet(settings: Any, alias: str = "default") -> None:
    """Store a value by the cache and a job by the queue, and find the value where the job is."""
    settings.DELAYQ = {"REDIS": alias}
    caches[alias].set("greeting", "hello")
    handle = noop.after(60).enqueue()
    client = get_store().shards[0].client
    assert client.exists(caches[alias].make_key("greeting"))
    assert client.zcard("delayq:{0}:scheduled:default") == 1
    assert handle.state is State.SCHEDULED and handle.cancel()
    assert caches[alias].get("greeting") == "hello"


@pytest.mark.parametrize(
    ("backend", "url", "options"),
    [
        (DJANGO_REDIS, "redis://shop:{password}@{host}/6", {}),
        (
            DJANGO_REDIS,
            "redis://shop@{host}?db=7",
            {"PASSWORD": CANARY, "CLIENT_CLASS": "django_redis.client.HerdClient"},
        ),
        (
            DJANGO_REDIS,
            "redis://{host}/1",
            {"CONNECTION_POOL_KWARGS": {"username": "shop", "password": CANARY, "db": 9}},
        ),
        (DJANGO_REDIS, "redis://{host}", {"CONNECTION_POOL_KWARGS": {"credential_provider": AskedUser()}}),
        (DJANGO_REDIS, "redis://{host}/2", {"CONNECTION_FACTORY": f"{__name__}.FromVault", "VAULT": lambda: CANARY}),
        (
            DJANGO_REDIS,
            "unix://shop:{password}@{socket}?db=3",
            {"CONNECTION_POOL_CLASS": "redis.BlockingConnectionPool"},
        ),
        (DJANGO, "redis://{host}", {"username": "shop", "password": CANARY, "db": 4}),
        (DJANGO, "redis://shop:{password}@{host}/5;redis://shop:{password}@{host}/5", {}),
    ],
    ids=["URL", "options", "pool", "provider", "callable", "socket", "Django's", "Django's with a replica"],
)
def test_the_queue_reaches_what_the_cache_reaches(
    backend: str, url: str, options: dict[str, Any], server: LocalRedisServer, settings: Any
) -> None:
    location = url.format(password=CANARY, host=f"127.0.0.1:{server.port}", socket=server.socket)
    settings.CACHES = {"default": {"BACKEND": backend, "LOCATION": location, "OPTIONS": options}}
    meet(settings)


@pytest.fixture
def group(server_program: Path) -> Iterator[SentinelGroup]:
    with SentinelGroup(server=server_program, replicas=1, password=CANARY, sentinel_password="of-sentinels") as started:
        yield started


def test_the_queue_follows_the_sentinels_of_the_cache(group: SentinelGroup, settings: Any) -> None:
    settings.DJANGO_REDIS_CONNECTION_FACTORY = "django_redis.pool.SentinelConnectionFactory"
    location = [f"redis://{SERVICE}/2?is_master={flag}" for flag in (1, 0)]
    options = {
        "SENTINELS": group.setting["sentinels"],
        "SENTINEL_KWARGS": group.setting["sentinel_kwargs"],
        "PASSWORD": CANARY,
    }
    settings.CACHES = {"default": {"BACKEND": DJANGO_REDIS, "LOCATION": location, "OPTIONS": options}}
    meet(settings)
    before = group.master()
    before.kill()
    until(is_accepted, what="a job on the new primary")
    assert get_store().shards[0].route.node.connections.address == ("127.0.0.1", group.port_of(group.master()))
    assert group.master() is not before


def is_accepted() -> bool:
    try:
        return noop.after(60).enqueue().state is State.SCHEDULED
    except StoreUnavailable:
        return False


def test_a_callable_may_name_a_cluster(server_program: Path, settings: Any) -> None:
    with LocalCluster(server=server_program, masters=2, replicas=0) as cluster:
        settings.DELAYQ = {"REDIS": lambda: cluster.url, "SHARDS": 4}
        handles = [noop.after(60).enqueue() for _ in range(20)]
        assert {handle.id[-1] for handle in handles} == {"0", "1", "2", "3"}
        assert all(handle.state is State.SCHEDULED for handle in handles)
