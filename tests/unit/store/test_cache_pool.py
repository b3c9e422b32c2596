"""Cache pool: what an alias of CACHES describes is read without connecting; what cannot be read is a clear error."""

import re
import subprocess
import sys
from typing import Any

import pytest
import redis
from django.core.exceptions import ImproperlyConfigured
from django_redis.cache import RedisCache
from django_redis.client import DefaultClient
from django_redis.pool import ConnectionFactory
from redis.sentinel import SentinelConnectionPool

from django_delayq import checks, get_store
from django_delayq.conf.redis_settings import RedisConfig
from django_delayq.store.nodes.connections import Connections

CANARY = "s3cret-canary"
DJANGO_REDIS, DJANGO = "django_redis.cache.RedisCache", "django.core.cache.backends.redis.RedisCache"
SENTINEL_FACTORY, SENTINEL_CLIENT = "django_redis.pool.SentinelConnectionFactory", "django_redis.client.SentinelClient"


class OwnCache(RedisCache):
    """A backend of a project that connects as django-redis does."""


class OwnClientCache(RedisCache):
    @property
    def client(self) -> Any:
        raise AssertionError("made while reading")


class QuietClient(DefaultClient):
    """A client of a project that changes no connection."""

    def has_key(self, *args: Any, **kwargs: Any) -> bool:
        return False


class OtherServerClient(DefaultClient):
    def connect(self, index: int = 0) -> Any:
        raise AssertionError("made while reading")


class FromVault(ConnectionFactory):
    """A factory that takes the password from elsewhere."""

    def make_connection_params(self, url: str) -> Any:
        return super().make_connection_params(url) | {"password": self.options["VAULT"]()}


class OwnConnections(ConnectionFactory):
    def connect(self, url: str) -> Any:
        raise AssertionError("made while reading")


class OwnPool(redis.ConnectionPool):
    def make_connection(self) -> Any:
        raise AssertionError("made while reading")


class Duck:
    """A factory with none of its methods."""

    def __init__(self, options: Any) -> None: ...


def own(kind: type) -> str:
    return f"{__name__}.{kind.__name__}"


def cache(location: Any, backend: str = DJANGO_REDIS, **options: Any) -> dict[str, Any]:
    return {"jobs": {"BACKEND": backend, "LOCATION": location, "OPTIONS": options}}


def pool(settings: Any, caches: Any) -> redis.ConnectionPool:
    settings.CACHES = caches
    return Connections(RedisConfig.read("jobs")).configured_pool()


@pytest.mark.parametrize(
    ("caches", "parameters"),
    [
        (cache("redis://u:p@h:7000/1"), {"host": "h", "port": 7000, "db": 1, "username": "u", "password": "p"}),
        (cache("redis://h", PASSWORD="p"), {"password": "p"}),
        (cache("redis://h", own(OwnCache), PASSWORD="p"), {"host": "h", "password": "p"}),
        (cache("redis://h", CLIENT_CLASS=own(QuietClient)), {"host": "h"}),
        (cache("redis://h", CLIENT_CLASS="django_redis.client.HerdClient"), {"host": "h"}),
        (cache("redis://h", CLIENT_CLASS="django_redis.client.ShardClient"), {"host": "h"}),
        (cache("redis://h", CONNECTION_POOL_CLASS="redis.BlockingConnectionPool"), {"host": "h"}),
        (cache("redis://h", CONNECTION_FACTORY=own(FromVault), VAULT=lambda: "fresh"), {"password": "fresh"}),
        (cache("redis://h", CONNECTION_POOL_KWARGS={"db": 4, "client_name": "shop"}), {"db": 4, "client_name": "shop"}),
        (cache("redis://main?db=2, redis://replica"), {"host": "main", "db": 2}),
        (cache(("redis://main", "redis://replica")), {"host": "main"}),
        (cache("unix://:p@/run/r.sock?db=3"), {"path": "/run/r.sock", "password": "p", "db": 3}),
        (cache("valkey://h"), {"host": "h"}),
        (cache("redis://main;redis://replica", DJANGO, db=4, username="u"), {"host": "main", "db": 4, "username": "u"}),
        (cache("redis://h", DJANGO, pool_class="redis.BlockingConnectionPool", serializer="x.Y"), {"host": "h"}),
    ],
)
def test_a_pool_is_that_of_the_caches_own_factory(caches: Any, parameters: dict[str, Any], settings: Any) -> None:
    made = pool(settings, caches).connection_kwargs
    assert {name: made[name] for name in parameters} == parameters


def test_the_pools_and_options_of_the_cache_stay_as_they_are(settings: Any) -> None:
    caches = cache("redis://untouched/0", CONNECTION_FACTORY=SENTINEL_FACTORY, SENTINELS=[("s", 26379)])
    before = dict(caches["jobs"]["OPTIONS"])
    pool(settings, caches)
    assert caches["jobs"]["OPTIONS"] == before
    assert not [url for url in ConnectionFactory._pools if "untouched" in url]


@pytest.mark.parametrize("is_global", [True, False], ids=["factory of all caches", "factory of this one"])
@pytest.mark.parametrize(
    ("location", "options"),
    [
        ("redis://u:p@mymaster/2", {"CLIENT_CLASS": SENTINEL_CLIENT}),
        (["redis://u:p@mymaster/2?is_master=1", "redis://u:p@mymaster/2?is_master=0"], {}),
        ("redis://mymaster/2", {"USERNAME": "u", "CONNECTION_POOL_KWARGS": {"username": "u"}, "PASSWORD": "p"}),
    ],
    ids=["client", "two locations", "options"],
)
def test_sentinels_are_those_of_the_cache(location: Any, options: Any, is_global: bool, settings: Any) -> None:
    factory = {} if is_global else {"CONNECTION_FACTORY": SENTINEL_FACTORY}
    if is_global:
        settings.DJANGO_REDIS_CONNECTION_FACTORY = SENTINEL_FACTORY
    sentinels = [("s1", 26379), ("s2", "26380")]
    settings.CACHES = cache(location, SENTINELS=sentinels, SENTINEL_KWARGS={"password": "q"}, **options, **factory)
    config = RedisConfig.read("jobs")
    assert config.display_url == "mymaster/2 (Sentinels s1:26379,s2:26380)"
    made = Connections(config).configured_pool()
    assert isinstance(made, SentinelConnectionPool) and made.service_name == "mymaster"
    assert made.sentinel_manager.sentinel_kwargs == {"password": "q"}
    given = made.connection_kwargs
    assert (given["username"], given["password"], given["db"]) == ("u", "p", 2)
    settings.DELAYQ = {"REDIS": "jobs"}
    assert checks.check_redis() == []


WRONG = [
    (cache("redis://h", own(OwnClientCache)), r"OwnClientCache\.client makes connections in a way of its own"),
    (cache("redis://h", CLIENT_CLASS=own(OtherServerClient)), r"OtherServerClient\.connect makes connections in a way"),
    (cache("redis://h", CLIENT_CLASS="redis.Redis"), "client Redis is not django-redis's"),
    (cache("redis://h", CLIENT_CLASS="nowhere.Client"), "ModuleNotFoundError: No module named 'nowhere'"),
    (
        cache("redis://h,redis://i", CLIENT_CLASS="django_redis.client.ShardClient"),
        r"spreads its keys over several servers\..*Name the one",
    ),
    (cache("redis://h", CONNECTION_POOL_CLASS=own(OwnPool)), r"OwnPool\.make_connection makes connections"),
    (cache("redis://h", DJANGO, pool_class=OwnPool), r"OwnPool\.make_connection makes connections"),
    (cache("redis://h", DJANGO, nonsense=OwnPool, max_connections=-1), "max_connections"),
    (cache("redis://h", REDIS_CLIENT_CLASS="redis.RedisCluster"), r"no client of one server\..*redis\+cluster://"),
    (cache("redis://h", SOCKET_TIMEOUT="5"), "Socket timeout should be"),
    (cache("redis://h?max_connections=x"), "Invalid value for 'max_connections'"),
    (cache("redis://h", CLIENT_CLASS=SENTINEL_CLIENT), "SentinelClient, but whose pool knows no Sentinels"),
    (cache("redis://mymaster", CONNECTION_FACTORY=SENTINEL_FACTORY), "SENTINELS must be provided"),
    (
        cache("redis://m?is_master=0", CONNECTION_FACTORY=SENTINEL_FACTORY, SENTINELS=[("s", 1)]),
        "names replicas.*is_master=1",
    ),
    (cache("rediss://h?ssl_ca_certs=/nonexistent"), "'ssl_ca_certs'.*file that this user can read"),
    (cache("rediss://h", CONNECTION_POOL_KWARGS={"ssl_keyfile": "/nonexistent"}), "'ssl_keyfile'.*permissions"),
    (
        cache(
            *["redis://m"],
            CONNECTION_FACTORY=SENTINEL_FACTORY,
            SENTINELS=[("s", 1)],
            SENTINEL_KWARGS={"ssl": True, "ssl_certfile": "/nonexistent"},
        ),
        "'ssl_certfile'.*file that this user can read",
    ),
]


@pytest.mark.parametrize(("caches", "words"), WRONG, ids=lambda part: part if isinstance(part, str) else "")
def test_a_cache_that_cannot_be_read_is_an_error_of_the_check_and_of_the_first_use(
    caches: dict[str, Any], words: str, settings: Any
) -> None:
    caches["jobs"]["OPTIONS"]["PASSWORD"] = CANARY
    if caches["jobs"]["BACKEND"] == DJANGO:
        caches["jobs"]["OPTIONS"]["password"] = caches["jobs"]["OPTIONS"].pop("PASSWORD")
    settings.CACHES, settings.DELAYQ = caches, {"REDIS": "jobs"}
    [problem] = checks.check_redis()
    assert problem.id == "delayq.E005"
    with pytest.raises(ImproperlyConfigured, match=words) as caught:
        get_store().shards[0].client.ping()
    assert problem.msg in str(caught.value) and str(problem.hint) in str(caught.value)
    assert CANARY not in f"{problem!r} {caught.value!r} {get_store().config!r}"


@pytest.mark.parametrize("kind", [OwnConnections, Duck])
def test_a_factory_of_the_project_that_cannot_be_read_is_an_error_of_the_first_use(kind: type, settings: Any) -> None:
    settings.CACHES, settings.DELAYQ = cache("redis://h", CONNECTION_FACTORY=own(kind)), {"REDIS": "jobs"}
    with pytest.raises(ImproperlyConfigured, match=r"cache 'jobs', wh(ose|ich cannot connect: AttributeError)"):
        get_store().shards[0].client.ping()


def test_a_factory_of_the_project_is_not_called_by_the_check_and_its_errors_show_no_secret(settings: Any) -> None:
    def fail() -> str:
        raise ValueError(CANARY)

    settings.CACHES = cache("redis://h", CONNECTION_FACTORY=own(FromVault), VAULT=fail)
    settings.DELAYQ = {"REDIS": "jobs"}
    assert checks.check_redis() == []
    with pytest.raises(ImproperlyConfigured, match="cannot connect: ValueError") as caught:
        get_store().shards[0].client.ping()
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ("redis://h?max_connections=many", "Invalid value for 'max_connections'"),
        ({"host": "h", "ssl_certfile": None, "ssl": True, "ssl_min_version": 5}, None),
        ("rediss://h?ssl_keyfile=/nonexistent", "'ssl_keyfile'.*got '/nonexistent'"),
        ("rediss+cluster://h,i?ssl_certfile=/nonexistent", "'ssl_certfile'.*got '/nonexistent'"),
    ],
)
def test_what_the_library_does_not_accept_is_an_error_of_the_check(form: Any, words: str | None, settings: Any) -> None:
    settings.DELAYQ = {"REDIS": form}
    problems = checks.check_redis()
    assert [problem.id for problem in problems] == (["delayq.E005"] if words else [])
    assert all(words is None or re.search(words, problem.msg) for problem in problems)


def test_servers_of_a_cache_that_have_no_jobs_are_a_warning(settings: Any) -> None:
    settings.CACHES = cache([f"redis://:{CANARY}@main:7000/1", f"redis://:{CANARY}@replica"])
    settings.DELAYQ = {"REDIS": "jobs"}
    [problem] = checks.check_redis()
    assert problem.id == "delayq.W025" and "redis://main:7000/1" in problem.msg and problem.hint
    assert CANARY not in repr(problem)


def test_a_missing_setting_is_reported_by_the_other_check_alone(settings: Any) -> None:
    settings.DELAYQ = {}
    assert checks.check_redis() == []


def test_django_redis_is_imported_only_for_an_alias() -> None:
    code = """
import sys
from django.conf import settings
settings.configure(CACHES={"jobs": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://h"}})
from django_delayq.conf.redis_settings import RedisConfig
from django_delayq.store.nodes.connections import Connections
for form in ("redis://h", "jobs"):
    config = RedisConfig.read(form)
    assert "django_redis" not in sys.modules, form
    Connections(config).configured_pool()
assert "django_redis" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
