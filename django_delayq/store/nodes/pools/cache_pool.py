"""Cache pool: the connection pool that an alias of CACHES describes, made by the connection factory of the cache.

The pool is a new one, from a copy of the alias: the cache keeps its own. What changes how connections are made, and is
neither a factory nor parameters, cannot be read; that is an error.
"""

from collections.abc import Iterable
from typing import Any

import redis
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string
from redis.sentinel import SentinelConnectionPool

from django_delayq.conf.redis_settings import DJANGO_REDIS, CacheConfig, SettingError

#: Methods that decide which connections a cache, a client of django-redis, its factory and a pool have.
_OF_CACHE = ("__init__", "client", "_cache")
_OF_CLIENT = ("__init__", "connect", "get_client", "get_client_with_index", "get_next_client_index")
_OF_FACTORY = ("connect", "get_connection")
_OF_POOL = ("get_connection", "make_connection")
#: Errors of django-redis and the client library for options that they do not accept.
_REFUSED = (ImproperlyConfigured, ImportError, AttributeError, ValueError, TypeError, AssertionError)
_HINT = "Give {setting} a URL, a dict of parameters, or a callable that returns one of them."


def cache_pool(cache: CacheConfig, setting: str) -> redis.ConnectionPool:
    """Return a new pool of the first server of a cache. Opens no connection. Raises `SettingError`."""
    makes = _django_redis_pool if cache.kind == DJANGO_REDIS else _django_pool
    try:
        _check(import_string(cache.backend), _OF_CACHE, library=cache.kind)
        pool = makes(cache)
        _check(type(pool), _OF_POOL, library="redis")
    except _Indescribable as error:
        hint = error.hint or _HINT.format(setting=setting)
        raise SettingError(f"{setting} names the cache {cache.alias!r}, {error}.", hint) from None
    except _REFUSED as error:
        # Code of the project may put a password into its errors.
        text = f"{type(error).__name__}: {error}" if is_of_library(cache) else type(error).__name__
        message = f"{setting} names the cache {cache.alias!r}, which cannot connect: {text}."
        raise SettingError(message, f"Correct CACHES[{cache.alias!r}].") from None
    return pool


def is_of_library(cache: CacheConfig) -> bool:
    """Whether its connection factory is django-redis's or Django's own, which read their options and nothing else."""
    return cache.kind != DJANGO_REDIS or str(cache.options["CONNECTION_FACTORY"]).startswith("django_redis.")


class _Indescribable(Exception):
    """The cache makes connections in a way that cannot be read; the text follows its name."""

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.hint = hint


def _django_redis_pool(cache: CacheConfig) -> redis.ConnectionPool:
    # Imported here because a project without such a cache does not need it.
    from django_redis.client import DefaultClient, SentinelClient, ShardClient
    from django_redis.pool import get_connection_factory

    # A factory may add to them.
    options = dict(cache.options)
    client = import_string(options.get("CLIENT_CLASS", "django_redis.client.DefaultClient"))
    if issubclass(client, ShardClient) and cache.has_several_servers:
        raise _Indescribable("which spreads its keys over several servers", "Name the one that is to have the jobs.")
    if not issubclass(client, DefaultClient):
        raise _Indescribable(f"whose client {client.__qualname__} is not django-redis's")
    _check(client, _OF_CLIENT, library="django_redis")
    if not issubclass(kind := import_string(options.get("REDIS_CLIENT_CLASS", "redis.client.Redis")), redis.Redis):
        hint = "For a cluster give a URL redis+cluster://host1:6379,host2:6379."
        raise _Indescribable(f"whose REDIS_CLIENT_CLASS {kind.__qualname__} is no client of one server", hint)
    factory: Any = get_connection_factory(options=options)
    _check(type(factory), _OF_FACTORY, library="django_redis")
    # Not its method that looks for a pool first: that pool is the cache's.
    pool: redis.ConnectionPool = factory.get_connection_pool(factory.make_connection_params(cache.locations[0]))
    if isinstance(pool, SentinelConnectionPool):
        # SentinelClient asks for the primary by itself.
        if not (pool.is_master or issubclass(client, SentinelClient)):
            raise _Indescribable("whose first LOCATION names replicas", "Put the one with is_master=1 first.")
    elif issubclass(client, SentinelClient):
        hint = "Set its OPTIONS['CONNECTION_FACTORY'] to 'django_redis.pool.SentinelConnectionFactory'."
        raise _Indescribable("whose client is SentinelClient, but whose pool knows no Sentinels", hint)
    return pool


def _django_pool(cache: CacheConfig) -> redis.ConnectionPool:
    options = {name: value for name, value in cache.options.items() if name not in ("serializer", "parser_class")}
    kind = options.pop("pool_class", None) or redis.ConnectionPool
    pool: redis.ConnectionPool = (import_string(kind) if isinstance(kind, str) else kind).from_url(
        cache.locations[0], **options
    )
    return pool


def _check(kind: type, methods: Iterable[str], *, library: str) -> None:
    """Raise `_Indescribable` if a class from outside of a library, or of the package of a path, defines a method."""
    for name in methods:
        owner = next((base for base in kind.__mro__ if name in vars(base)), object)
        if owner.__module__.partition(".")[0] not in (library.partition(".")[0], "builtins"):
            raise _Indescribable(f"whose {owner.__qualname__}.{name} makes connections in a way of its own")
