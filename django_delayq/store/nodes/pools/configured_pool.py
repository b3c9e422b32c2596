"""Configured pool: the connection pool of the client library that any form of the REDIS setting describes.

It is only read: connections have its class and its parameters, but timeouts and retries of their own.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import redis
from django.core.exceptions import ImproperlyConfigured
from redis.sentinel import Sentinel, SentinelConnectionPool

from django_delayq.conf.redis_settings import RedisConfig, SettingError, check_files
from django_delayq.store.nodes.pools.cache_pool import cache_pool

_UNKNOWN_PARAMETER = re.compile(r"unexpected keyword argument '(\w+)'")


def resolved(config: RedisConfig) -> RedisConfig | redis.ConnectionPool:
    """Return what a callable returns, else the configuration itself. Raises `SettingError`."""
    if config.factory is None:
        return config
    made = config.factory()
    if isinstance(made, redis.Redis):
        # Its connections stay the project's.
        return made.connection_pool
    found = RedisConfig.read(made, setting=config.setting)
    if found.factory is not None:
        raise SettingError(f"{config.setting} is a callable that returns a callable.")
    return found


def pool_of(found: RedisConfig | redis.ConnectionPool) -> redis.ConnectionPool:
    """Return the pool that a resolved configuration describes. Opens no connection. Raises `SettingError`."""
    if isinstance(found, redis.ConnectionPool):
        return found
    try:
        return _pool_of(found)
    except SettingError:
        raise
    except (ValueError, TypeError) as error:
        raise SettingError(f"{found.setting} is not accepted by the client library: {_without_stop(error)}.") from None


def checked_pool(found: RedisConfig | redis.ConnectionPool) -> redis.ConnectionPool:
    """Do as `pool_of()`, and refuse what every connection would fail with, wherever it came from.

    These are files of TLS that are not readable, and parameters that a connection does not take.
    """
    pool, setting = pool_of(found), getattr(found, "setting", "The client")
    manager = getattr(pool, "sentinel_manager", None)
    for parameters in (pool.connection_kwargs, getattr(manager, "sentinel_kwargs", {})):
        check_files(parameters, setting)
    _check_parameters(pool, setting)
    return pool


def _check_parameters(pool: redis.ConnectionPool, setting: str) -> None:
    try:
        # It connects at its first command. The library checks parameters only here.
        pool.connection_class(**pool.connection_kwargs)
    except Exception as error:
        unknown = _UNKNOWN_PARAMETER.search(str(error))
        if not unknown:
            # Code of the project may put a password into its errors.
            is_of_library = pool.connection_class.__module__.startswith("redis.")
            text = _without_stop(error) if is_of_library else type(error).__name__
            raise SettingError(f"{setting} is not accepted by the client library: {text}.") from None
        name = unknown[1]
        is_of_tls = name.startswith("ssl_")
        reason = "without TLS" if is_of_tls else "of this kind"
        use_tls = 'For a server with TLS use rediss://, or in a dict "ssl": True; else remove it.'
        hint = use_tls if is_of_tls else "Correct its name, or remove it."
        raise SettingError(
            f"{setting} has the parameter {name!r:.80}, which connections {reason} do not take.", hint
        ) from None


@contextmanager
def as_improperly_configured(config: RedisConfig) -> Iterator[None]:
    """Turn a `SettingError` of the `with` block into ImproperlyConfigured, with the name of the setting."""
    try:
        yield
    except SettingError as error:
        message = str(error)
        if not message.startswith(config.setting):
            message = f"{config.setting} cannot be used: {message}"
        raise ImproperlyConfigured(f"{message} {error.hint}") from None


def _without_stop(error: Exception) -> str:
    return str(error).rstrip(".")


def _pool_of(config: RedisConfig) -> redis.ConnectionPool:
    if config.cache is not None:
        return cache_pool(config.cache, config.setting)
    if config.sentinels:
        manager = Sentinel(config.sentinels, sentinel_kwargs=dict(config.sentinel_parameters))
        return SentinelConnectionPool(config.service, manager, **config.parameters)
    if config.url is not None:
        return redis.ConnectionPool.from_url(config.url, **config.parameters)
    # The constructor of the client chooses the connection class for unix sockets and TLS.
    return redis.Redis(**config.parameters).connection_pool
