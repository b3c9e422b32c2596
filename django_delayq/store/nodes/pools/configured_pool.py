"""Configured pool: the connection pool of the client library that any form of the REDIS setting describes.

It is only read: connections have its class and its parameters, but timeouts and retries of their own.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import redis
from django.core.exceptions import ImproperlyConfigured
from redis.sentinel import Sentinel, SentinelConnectionPool

from django_delayq.conf.redis_settings import RedisConfig, SettingError, check_files
from django_delayq.store.nodes.pools.cache_pool import cache_pool


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
        raise SettingError(f"{found.setting} is not accepted by the client library: {error}.") from None


def checked_pool(found: RedisConfig | redis.ConnectionPool) -> redis.ConnectionPool:
    """Do as `pool_of()`, and refuse files of TLS that are not readable, wherever their paths came from."""
    pool = pool_of(found)
    manager = getattr(pool, "sentinel_manager", None)
    for parameters in (pool.connection_kwargs, getattr(manager, "sentinel_kwargs", {})):
        check_files(parameters, getattr(found, "setting", "The client"))
    return pool


@contextmanager
def as_improperly_configured(config: RedisConfig) -> Iterator[None]:
    """Turn a `SettingError` of the `with` block into ImproperlyConfigured, with the name of the setting."""
    try:
        yield
    except SettingError as error:
        message = f"{config.setting} cannot be used: {error} {error.hint}"
        raise ImproperlyConfigured(message.rstrip()) from None


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
