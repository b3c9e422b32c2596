"""TLS with client certificates: one server, a cluster, and Sentinels. A wrong certificate is a clear error."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from django.core.cache import caches

from django_delayq import get_job, get_store
from django_delayq.conf.redis_settings import RedisConfig
from django_delayq.exceptions import StoreUnavailable
from django_delayq.job.job import State
from django_delayq.store.nodes.connection_cache import ConnectionCache
from django_delayq.store.nodes.connections import Connections
from django_delayq.store.nodes.resp import encode
from django_delayq.store.slots import hash_tag, slot_of
from django_delayq.testing.local_redis import LocalRedisServer
from tests.sample_app.tasks import noop
from tests.servers.certificates import Certificates
from tests.servers.local_cluster import LocalCluster
from tests.servers.sentinel_group import SERVICE, SentinelGroup
from tests.servers.tls_ports import start_with_tls
from tests.subprocesses import until

CANARY = "s3cret-canary"
DJANGO_REDIS, DJANGO = "django_redis.cache.RedisCache", "django.core.cache.backends.redis.RedisCache"


@pytest.fixture(scope="module")
def tls(certificates: Certificates, tls_program: Path) -> Iterator[int]:
    """The TLS port of a server that wants a password, and a certificate from each client."""
    options = {**certificates.server_options, "requirepass": CANARY}
    server, port = start_with_tls(
        lambda port: LocalRedisServer(server=tls_program, options={**options, "tls-port": str(port)})
    )
    with server:
        yield port


def query(parameters: dict[str, str]) -> str:
    return "&".join(f"{name}={value}" for name, value in parameters.items())


def forms(port: int, shown: dict[str, str]) -> dict[str, Any]:
    """Return the forms of the setting that show certificates; aliases are in CACHES."""
    url = f"rediss://:{CANARY}@127.0.0.1:{port}/0"
    return {
        "URL": f"{url}?{query(shown)}",
        "valkeys": f"valkeys://:{CANARY}@127.0.0.1:{port}/0?{query(shown)}",
        "dict": {"host": "127.0.0.1", "port": port, "password": CANARY, "ssl": True, **shown},
        "dict with URL": {"url": f"rediss://127.0.0.1:{port}", "password": CANARY, **shown},
        "default": {"BACKEND": DJANGO_REDIS, "LOCATION": url, "OPTIONS": {"CONNECTION_POOL_KWARGS": shown}},
        "django": {"BACKEND": DJANGO, "LOCATION": url, "OPTIONS": shown},
    }


def use(settings: Any, name: str, port: int, shown: dict[str, str]) -> None:
    """Make one of the forms the setting."""
    form = forms(port, shown)[name]
    is_alias = name in ("default", "django")
    settings.CACHES = {"default": form, name: form} if is_alias else {}
    settings.DELAYQ = {"REDIS": name if is_alias else form}


@pytest.mark.parametrize("name", forms(0, {}))
def test_every_form_shows_the_certificate_of_the_client(
    name: str, tls: int, certificates: Certificates, settings: Any
) -> None:
    use(settings, name, tls, certificates.client)
    handle = noop.after(60).enqueue("ü")
    assert handle.state is State.SCHEDULED and get_job(handle.id) and handle.cancel()
    if settings.CACHES:
        caches["default"].set("greeting", 1)
        assert get_store().shards[0].client.exists(caches["default"].make_key("greeting"))


@pytest.mark.parametrize("name", ["URL", "dict", "default"])
@pytest.mark.parametrize("shown", ["authority", "stranger"], ids=["without", "of another authority"])
def test_a_client_without_a_certificate_of_the_authority_gets_a_clear_error(
    shown: str, name: str, tls: int, certificates: Certificates, settings: Any
) -> None:
    use(settings, name, tls, getattr(certificates, shown))
    with pytest.raises(StoreUnavailable, match="certificate") as caught:
        noop.enqueue()
    assert not caught.value.maybe_accepted
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize("scheme", ["rediss", "redis"])
def test_an_untrusted_server_gets_no_job(scheme: str, tls: int, settings: Any) -> None:
    # Its certificate is unknown here, or the client speaks plain text to a TLS port.
    settings.DELAYQ = {"REDIS": f"{scheme}://:{CANARY}@127.0.0.1:{tls}/0"}
    with pytest.raises(StoreUnavailable) as caught:
        noop.enqueue()
    assert CANARY not in str(caught.value)


def test_every_tls_connection_works_from_its_first_command(tls: int, certificates: Certificates) -> None:
    with redis.Redis(host="127.0.0.1", port=tls, ssl=True, password=CANARY, **certificates.client) as admin:
        # With a password, a reply to AUTH would arrive before the first command, right behind the handshake.
        admin.config_set("requirepass", "")
        connections = Connections(RedisConfig.read(f"rediss://127.0.0.1:{tls}/0?{query(certificates.client)}"))
        each_new = [ConnectionCache(connections.client()) for _ in range(30)]
        assert [cache.send(encode("PING")).read_all(1) for cache in each_new] == [[b"PONG"]] * 30
        admin.config_set("requirepass", CANARY)


def test_a_cluster_is_reached_by_tls_alone(tls_program: Path, certificates: Certificates, settings: Any) -> None:
    shards = 4
    with LocalCluster(server=tls_program, masters=2, replicas=0, tls=certificates) as cluster:
        forms = (
            {"url": cluster.url, **certificates.client},
            f"{cluster.url}?{query(certificates.client)}",
            {"cluster": [node.address for node in cluster.nodes], "ssl": True, **certificates.client},
        )
        for form in forms:
            settings.DELAYQ = {"REDIS": form, "SHARDS": shards}
            handles = [noop.after(60).enqueue() for _ in range(20)]
            # The nodes move a slot after the map was read.
            slot = slot_of(hash_tag(1))
            cluster.move_slot(slot, next(each for each in cluster.nodes if each is not cluster.master_of(slot)))
            assert all(handle.state is State.SCHEDULED and handle.cancel() for handle in handles)
        settings.DELAYQ = {"REDIS": cluster.url}
        with pytest.raises(StoreUnavailable, match="certificate"):
            noop.enqueue()


def test_sentinels_and_their_primary_are_reached_by_tls_alone(
    tls_program: Path, certificates: Certificates, settings: Any
) -> None:
    with SentinelGroup(
        server=tls_program, replicas=1, password=CANARY, sentinel_password="of-sentinels", tls=certificates
    ) as group:
        settings.CACHES = {
            "default": {
                "BACKEND": DJANGO_REDIS,
                "LOCATION": f"redis://{SERVICE}/0",
                "OPTIONS": {
                    "CLIENT_CLASS": "django_redis.client.SentinelClient",
                    "CONNECTION_FACTORY": "django_redis.pool.SentinelConnectionFactory",
                    "SENTINELS": group.setting["sentinels"],
                    "SENTINEL_KWARGS": group.setting["sentinel_kwargs"],
                    "PASSWORD": CANARY,
                    "CONNECTION_POOL_KWARGS": {"ssl": True, **certificates.client},
                },
            }
        }
        settings.DELAYQ = {"REDIS": "default"}
        assert noop.after(60).enqueue().cancel()
        caches["default"].set("greeting", 1)
        assert get_store().shards[0].client.exists(caches["default"].make_key("greeting"))
        settings.DELAYQ = {"REDIS": group.setting}
        assert noop.after(60).enqueue().cancel()
        group.master().kill()
        until(accepts, what="a job on the new primary")


def accepts() -> bool:
    """Whether a job is accepted."""
    try:
        return noop.after(60).enqueue().state is State.SCHEDULED
    except StoreUnavailable:
        return False
