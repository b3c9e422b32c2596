"""Configured pool: a parameter that no connection takes is an error of the setting, before the first connection."""

import re
from typing import Any

import pytest
import redis
from django.core.exceptions import ImproperlyConfigured

from django_delayq import checks, get_store
from django_delayq.conf.redis_settings import RedisConfig, SettingError
from django_delayq.exceptions import see
from django_delayq.store.nodes.pools.configured_pool import checked_pool

CANARY = "s3cret-canary"
DJANGO_REDIS = "django_redis.cache.RedisCache"
A_SETTING = see("troubleshooting#a-setting-is-wrong")


class OwnConnection(redis.Connection):
    def __init__(self, **parameters: Any) -> None:
        raise ValueError(f"no login by {parameters['password']}")


def connect() -> None:
    """Do what comes before the first connection of a process."""
    assert get_store().shards[0].client


def alias(**options: Any) -> dict[str, Any]:
    return {"default": {"BACKEND": DJANGO_REDIS, "LOCATION": f"redis://:{CANARY}@h:1/0", "OPTIONS": options}}


FORMS: dict[str, Any] = {
    "URL": f"redis://:{CANARY}@h:1/0?ssl_cert_reqs=none",
    "socket": "unix:///nowhere/redis.sock?ssl_cert_reqs=none",
    "cluster": "redis+cluster://h:1?ssl_cert_reqs=none",
    "dict with URL": {"url": "redis://h:1", "ssl_cert_reqs": "none"},
    "Sentinels": {"sentinels": ["h:1"], "service": "main", "ssl_cert_reqs": "none"},
    "default": "default",
    "callable": lambda: "redis://h:1?ssl_cert_reqs=none",
}


@pytest.mark.parametrize("name", FORMS)
def test_a_parameter_of_tls_without_tls_is_an_error_of_the_setting(name: str, settings: Any) -> None:
    settings.CACHES = alias(CONNECTION_POOL_KWARGS={"ssl_cert_reqs": "none"})
    settings.DELAYQ = {"REDIS": FORMS[name]}
    message = "DELAYQ['REDIS'] has the parameter 'ssl_cert_reqs', which connections without TLS do not take."
    hint = f'For a server with TLS use rediss://, or in a dict "ssl": True; else remove it. {A_SETTING}'
    with pytest.raises(ImproperlyConfigured, match=f"^{re.escape(f'{message} {hint}')}$"):
        connect()
    if name != "callable":
        [problem] = checks.check_redis()
        assert (problem.id, problem.msg, problem.hint) == ("delayq.E005", message, hint)


def test_a_misspelt_parameter_is_an_error_of_the_setting() -> None:
    with pytest.raises(SettingError, match="has the parameter 'clientname', which connections of this kind do not"):
        checked_pool(RedisConfig.read("redis://h:1/0?clientname=shop"))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("rediss://h:1/0?ssl_cert_reqs=sometimes", "Invalid SSL Certificate Requirements Flag: sometimes"),
        ("redis://h:1/0?max_connections=many", "Invalid value for 'max_connections' in connection URL"),
    ],
)
def test_an_error_of_the_setting_says_its_name_once_and_has_one_full_stop(url: str, words: str, settings: Any) -> None:
    settings.DELAYQ = {"REDIS": url}
    with pytest.raises(ImproperlyConfigured) as caught:
        connect()
    text = f"DELAYQ['REDIS'] is not accepted by the client library: {words}. Use a URL "
    assert str(caught.value).startswith(text) and str(caught.value).endswith(A_SETTING)


def test_an_error_of_the_code_of_a_project_is_not_shown(settings: Any) -> None:
    settings.DELAYQ = {
        "REDIS": lambda: redis.Redis(connection_pool=redis.ConnectionPool(OwnConnection, password=CANARY))
    }
    with pytest.raises(ImproperlyConfigured, match="library: ValueError") as caught:
        connect()
    assert CANARY not in str(caught.value)
