"""RedisConfig: every form of the setting is read without connecting, and no error shows a secret."""

import pickle
import traceback
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_delayq import checks
from django_delayq.conf.redis_settings import RedisConfig, SettingError
from django_delayq.conf.settings import get_config, read_config

CANARY = "s3cret-canary"
DJANGO = "django.core.cache.backends.redis.RedisCache"


@pytest.mark.parametrize(
    ("url", "kept", "address"),
    [
        ("redis://", "redis://", "redis://localhost:6379/0"),
        ("redis://h", "redis://h", "redis://h:6379/0"),
        ("redis://h:7000/3", "redis://h:7000/3", "redis://h:7000/3"),
        ("REDIS://h", "redis://h", "redis://h:6379/0"),
        ("rediss://u:p@h:7000/3?ssl_cert_reqs=none", "rediss://u:p@h:7000/3?ssl_cert_reqs=none", "rediss://h:7000/3"),
        ("valkey://u:p@h", "redis://u:p@h", "redis://h:6379/0"),
        ("valkeys://h", "rediss://h", "rediss://h:6379/0"),
        ("unix:///run/redis.sock?db=1", "unix:///run/redis.sock?db=1", "unix:///run/redis.sock"),
        ("unix://u:p@/run/redis.sock", "unix://u:p@/run/redis.sock", "unix:///run/redis.sock"),
        ("redis://[::1]:7000/0", "redis://[::1]:7000/0", "redis://::1:7000/0"),
    ],
)
def test_a_url_is_kept_and_its_address_displayed(url: str, kept: str, address: str) -> None:
    for form in (url, {"url": url}):
        config = RedisConfig.read(form)
        assert (config.url, config.display_url) == (kept, address)


@pytest.mark.parametrize(
    ("parameters", "address"),
    [
        ({}, "localhost:6379/0"),
        ({"host": "h", "port": 7000, "db": 3, "username": "u", "password": "p"}, "h:7000/3"),
        ({"unix_socket_path": "/run/redis.sock"}, "/run/redis.sock/0"),
        ({"host": "h", "ssl": True, "ssl_cert_reqs": "none"}, "h:6379/0"),
    ],
)
def test_parameters_are_kept_and_their_address_displayed(parameters: dict[str, Any], address: str) -> None:
    config = RedisConfig.read(parameters)
    assert (config.url, config.parameters, config.display_url) == (None, parameters, address)


@pytest.mark.parametrize(
    ("form", "nodes", "address"),
    [
        ("redis+cluster://h", [("h", 6379)], "redis+cluster://h:6379"),
        ("redis+cluster://u:p@h:7000,i:7001,j/0", [("h", 7000), ("i", 7001), ("j", 6379)], None),
        (
            "rediss+cluster://h:7000,i?ssl_ca_certs=/a,b/c@d",
            [("h", 7000), ("i", 6379)],
            "rediss+cluster://h:7000,i:6379",
        ),
        (
            "rediss+cluster://:a,b%40@h:7000,[::1]:7001",
            [("h", 7000), ("::1", 7001)],
            "rediss+cluster://h:7000,::1:7001",
        ),
        ("valkeys+cluster://h:7000,i:7001", [("h", 7000), ("i", 7001)], "rediss+cluster://h:7000,i:7001"),
        ({"cluster": ["h:7000", "i", ("j", 7002)], "password": "p"}, [("h", 7000), ("i", 6379), ("j", 7002)], None),
    ],
)
def test_a_cluster_is_named_by_some_of_its_nodes(form: Any, nodes: list[Any], address: str | None) -> None:
    config = RedisConfig.read(form)
    assert list(config.nodes) == nodes
    assert config.display_url == (address or f"redis+cluster://{','.join(f'{host}:{port}' for host, port in nodes)}")


def test_a_primary_is_named_by_its_sentinels() -> None:
    config = RedisConfig.read(
        {
            "sentinels": ["s1", ("s2", 26380)],
            "service": "jobs",
            "password": "p",
            "db": 2,
            "sentinel_kwargs": {"password": "q"},
        }
    )
    assert (config.sentinels, config.service) == ((("s1", 26379), ("s2", 26380)), "jobs")
    assert (config.parameters, config.sentinel_parameters) == ({"password": "p", "db": 2}, {"password": "q"})
    assert config.display_url == "jobs/2 (Sentinels s1:26379,s2:26380)"


def test_a_url_takes_further_parameters() -> None:
    config = RedisConfig.read({"url": "redis://h", "password": "p", "max_connections": 5})
    assert config.url == "redis://h" and config.parameters == {"password": "p", "max_connections": 5}


def test_a_callable_is_called_at_connect_time_only() -> None:
    def connect() -> str:
        raise AssertionError("called while reading")

    config = RedisConfig.read(connect)
    assert config.factory is connect and "connect" in config.display_url


def cache(location: Any, backend: str = "django_redis.cache.RedisCache", **options: Any) -> dict[str, Any]:
    return {"jobs": {"BACKEND": backend, "LOCATION": location, "OPTIONS": options}}


@pytest.mark.parametrize(
    ("caches", "urls", "address"),
    [
        (cache("redis://h:7000/1"), ["redis://h:7000/1"], "redis://h:7000/1"),
        (cache(["redis://main", "redis://replica"]), ["redis://main", "redis://replica"], "redis://main:6379/0"),
        (cache("redis://main, redis://replica"), ["redis://main", "redis://replica"], "redis://main:6379/0"),
        (cache("redis://main;redis://replica", DJANGO), ["redis://main", "redis://replica"], "redis://main:6379/0"),
        (cache("unix:///run/r.sock"), ["unix:///run/r.sock"], "unix:///run/r.sock"),
        (cache("valkeys://u:p@h"), ["rediss://u:p@h"], "rediss://h:6379/0"),
        (cache("redis://h", CONNECTION_POOL_KWARGS={"db": 3}), ["redis://h"], "redis://h:6379/3"),
        (cache("redis://h", DJANGO, db=4), ["redis://h"], "redis://h:6379/4"),
    ],
)
def test_the_description_of_a_cache_is_copied(
    caches: dict[str, Any], urls: list[str], address: str, settings: Any
) -> None:
    settings.CACHES = caches
    config = RedisConfig.read("jobs")
    assert config.cache and list(config.cache.locations) == urls
    assert config.display_url == address


@pytest.mark.parametrize(
    ("options", "most"), [({"CONNECTION_POOL_KWARGS": {"max_connections": 9, "retry": 1}}, {"max_connections": 9})]
)
def test_the_number_of_connections_of_a_cache_is_copied(options: Any, most: Any, settings: Any) -> None:
    settings.CACHES = cache("rediss://h", **options)
    assert RedisConfig.read("jobs").parameters == most


def test_only_several_servers_are_several(settings: Any) -> None:
    for location, several in (("redis://m?is_master=1,redis://m?is_master=0", False), ("redis://m,redis://r", True)):
        settings.CACHES = cache(location)
        described = RedisConfig.read("jobs").cache
        assert described and described.has_several_servers is several


@pytest.mark.parametrize(
    ("form", "words"),
    [
        (None, "NoneType"),
        ("", "str"),
        (5, "int"),
        (True, "bool"),
        (b"redis://h", "bytes"),
        (["redis://h"], "list"),
        (RedisConfig, "type"),
        ("redes://h", "unknown scheme.*did you mean 'redis'"),
        ("http://h", "unknown scheme"),
        ("://h", "unknown scheme"),
        ("redis://h:port/0", "well-formed"),
        ("redis://h:99999/0", "well-formed"),
        ("redis://[::1", "well-formed"),
        ("redis://h/zero", "database must be a number"),
        ("redis://h/0/1", "database must be a number"),
        ("unix://", "path of a socket"),
        ({"hots": "h"}, "unknown parameter 'hots'.*did you mean 'host'"),
        ({"HOST": "h"}, "unknown parameter 'HOST'.*did you mean 'host'"),
        ({5: "h"}, "unknown parameter 5"),
        ({"socket_timeout": 1}, "unknown parameter 'socket_timeout'"),
        ({"decode_responses": True}, "unknown parameter"),
        ({"url": "redis://h", "host": "h"}, "both 'url' and 'host'"),
        ({"url": "redis://h", "unix_socket_path": "/s"}, "both 'url' and 'unix_socket_path'"),
        ({"host": "h", "unix_socket_path": "/s"}, "both 'host' and 'unix_socket_path'"),
        ({"url": 5}, "'url'.*must be a URL, got 5"),
        ({"url": "nowhere"}, "'url'.*must be a URL, got str"),
        ({"url": "ftp://h"}, "unknown scheme"),
        ({"ssl_ca_certs": "/nonexistent/ca.pem"}, "'ssl_ca_certs'.*file that this user can read, got '/nonex"),
        ({"ssl_keyfile": 5}, "'ssl_keyfile'.*file that this user can read"),
        ({"ssl_certfile": Path("/nonexistent")}, "'ssl_certfile'.*file that this user can read"),
        ({"port": "abc"}, "'port'"),
        ({"port": True}, "'port'"),
        ({"port": 70_000}, "'port'"),
        ({"db": "first"}, "'db'"),
        ({"db": -1}, "'db'"),
        ({"host": 5}, "'host'"),
        ({"unix_socket_path": 5}, "'unix_socket_path'"),
        ("redis+cluter://h", "unknown scheme.*did you mean 'redis\\+cluster'"),
        ("redis+cluster://h,i:port", "well-formed"),
        ("redis+cluster://h/1", "database 1 of a cluster"),
        ({"url": "redis+cluster://h", "db": 1}, "database 1 of a cluster"),
        ({"cluster": ["h"], "db": "2"}, "database 2 of a cluster"),
        ({"cluster": "h:7000"}, "'cluster'.*list of addresses"),
        ({"cluster": []}, "'cluster'.*list of addresses"),
        ({"cluster": [("h", 70_000)]}, "'cluster'.*list of addresses"),
        ({"cluster": ["h"], "host": "h"}, "both 'host' and 'cluster'"),
        ({"cluster": ["h"], "address_remap": "x"}, "'address_remap'.*function that takes and returns an address"),
        ({"host": "h", "address_remap": min}, "'address_remap', but names no cluster"),
        ({"url": "redis://h", "address_remap": min}, "'address_remap', but names no cluster"),
        ({"sentinels": ["s"]}, "'sentinels' without 'service'"),
        ({"sentinels": ["s"], "service": ""}, "'service'.*name of the primary"),
        ({"service": "jobs"}, "'service' without 'sentinels'"),
        ({"sentinels": ["redis://s"], "service": "jobs"}, "'sentinels'.*list of addresses"),
        ({"sentinels": ["s"], "service": "jobs", "sentinel_kwargs": "p"}, "'sentinel_kwargs'.*dict of parameters"),
        ("jobs_", "CACHES does not have.*did you mean 'jobs'"),
        ("nowhere", "CACHES does not have"),
        ("local", "is not Redis"),
        ("empty", "LOCATION.*not a Redis URL"),
        ("callable", "LOCATION.*not a Redis URL"),
        ("cluster", "CACHES\\['cluster'\\].*names a cluster"),
        ("sentinels", "SENTINELS.*list of addresses"),
        ("unknown", "is not Redis"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_wrong_form_is_a_problem_with_a_cure(form: Any, words: str, settings: Any) -> None:
    settings.CACHES = {
        **cache("redis://h"),
        "local": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
        "empty": {"BACKEND": "django_redis.cache.RedisCache"},
        "callable": cache(lambda: "redis://h")["jobs"],
        "cluster": cache("redis+cluster://h")["jobs"],
        "sentinels": cache("redis://jobs", SENTINELS="s:26379")["jobs"],
        "unknown": cache("redis://h", "nowhere.RedisCache")["jobs"],
    }
    with pytest.raises(SettingError, match=words) as caught:
        RedisConfig.read(form)
    assert caught.value.hint and "REDIS" in str(caught.value) or "CACHES" in str(caught.value)
    config, [problem] = read_config({"REDIS": form})
    assert config is None and problem.id == "delayq.E005" and problem.hint


def test_a_numeric_parameter_may_be_text() -> None:
    # As it comes from an environment variable.
    assert RedisConfig.read({"host": "h", "port": "7000", "db": "1"}).display_url == "h:7000/1"


#: Right and wrong forms that contain the canary as the password.
WITH_PASSWORD: list[Any] = [
    f"redis://user:{CANARY}@h:7000/0",
    f"redis://:{CANARY}@h",
    f"rediss://h?password={CANARY}",
    f"unix://user:{CANARY}@/run/redis.sock",
    f"unix:///run/redis.sock?password={CANARY}",
    f"valkey://user:{CANARY}@h",
    f"redes://user:{CANARY}@h",
    f"http://:{CANARY}@h",
    f"redis://user:{CANARY}@h:port/0",
    f"redis://user:{CANARY}@h/zero",
    f"redis://user:{CANARY}@[::1",
    f"redis://:pass/{CANARY}@h/0",
    f"redis://:12/{CANARY}@h:7000/0",
    f"redis://:12#{CANARY}@h:7000/0",
    f"redis://:12?{CANARY}@h:7000/0",
    f"user:{CANARY}@h:6379/0",
    f":{CANARY}@h",
    f"redis:/:{CANARY}@h",
    f"redis:user:{CANARY}@h:6379",
    f"unix://:{CANARY}@",
    {"host": "h", "password": CANARY},
    {"hots": "h", "password": CANARY},
    {"url": f"redis://:{CANARY}@h"},
    {"url": f"redis://:{CANARY}@h", "host": "h"},
    {"url": f":{CANARY}@h"},
    {"url": f"redis://:12/{CANARY}@h/0"},
    {"host": "h", "unix_socket_path": "/s", "password": CANARY},
    {"password": CANARY, "ssl_keyfile": "/nonexistent"},
    {"ssl_password": CANARY, "host": "h"},
    f"redis+cluster://u:{CANARY}@h:7000,i:7001",
    f"redis+cluster://u:{CANARY}@h:7000,i:port",
    f"redis+cluster://u:{CANARY}@h/1",
    {"cluster": [f"u:{CANARY}@h"]},
    {"sentinels": ["s"], "service": "jobs", "password": CANARY},
    {"sentinels": ["s"], "service": "jobs", "sentinel_kwargs": {"password": CANARY}},
    {"sentinels": ["s"], "service": "jobs", "sentinel_kwargs": CANARY},
    [f"redis://:{CANARY}@h"],
    f"redis://:{CANARY}@h".encode(),
]


def shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)) + repr(error) + str(error)


@pytest.mark.parametrize("form", WITH_PASSWORD, ids=lambda form: f"{type(form).__name__}-{str(form)[:24]}")
def test_a_password_is_never_shown(form: Any, settings: Any) -> None:
    settings.DELAYQ = {"REDIS": form}
    try:
        config = RedisConfig.read(form)
    except SettingError as error:
        # Beside the error itself a traceback shows source code only, no values.
        assert CANARY not in str(error) + error.hint
    else:
        assert CANARY not in repr(config) + str(config) + config.display_url
        assert CANARY not in repr(get_config())
    assert CANARY not in repr([*checks.check_settings(), *checks.check_redis()])
    try:
        get_config()
    except ImproperlyConfigured as error:
        assert CANARY not in shown(error)


def test_a_cache_password_is_never_shown(settings: Any) -> None:
    settings.CACHES = cache(f"redis://:{CANARY}@h", PASSWORD=CANARY)
    assert CANARY not in repr(RedisConfig.read("jobs"))
    settings.CACHES = cache(f":{CANARY}@h", PASSWORD=CANARY)
    with pytest.raises(SettingError) as caught:
        RedisConfig.read("jobs")
    assert CANARY not in str(caught.value) + caught.value.hint


def test_a_description_is_a_plain_value() -> None:
    config = RedisConfig.read({"url": "redis://h", "password": "p"})
    assert pickle.loads(pickle.dumps(config)) == config


def test_the_cure_of_an_unreadable_file_is_about_the_file() -> None:
    with pytest.raises(SettingError) as caught:
        RedisConfig.read({"host": "h", "ssl_ca_certs": "/nonexistent/ca.pem"})
    assert "permissions of the file" in caught.value.hint
