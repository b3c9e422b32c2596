"""Connections: clients and blocked connections made from a RedisConfig, with pools of our own.

The library's defaults are not ours: it repeats commands silently, and its timeouts know nothing of a blocking pop.
"""

import inspect
from dataclasses import dataclass
from typing import Any

import redis
from django.core.exceptions import ImproperlyConfigured
from redis.backoff import NoBackoff
from redis.connection import AbstractConnection
from redis.retry import Retry

from django_delayq.conf.redis_settings import RedisConfig, SettingError
from django_delayq.store.client.connection_cache import ANY_NUMBER
from django_delayq.store.client.deadline import with_deadline

#: Seconds a Redis command of a worker or dispatcher may take.
COMMAND_TIMEOUT = 5.0
#: What is taken over of a description: where the server is and who we are. Timeouts, retries, protocol, decoding and
#: caching are ours, whatever a URL's query or somebody else's client says.
_DESCRIPTION = frozenset(
    ("host", "port", "path", "db", "username", "password", "credential_provider", "client_name")
    + ("socket_keepalive", "socket_keepalive_options", "socket_type")
)
#: Not to say which library we are: that takes two answers more before the first command. Its parameter was renamed.
#: TLS needs an answer first: the tickets that come after the handshake look like one that nobody asked for.
_NO_INTRODUCTION: dict[str, Any] = (
    {"driver_info": None}
    if "driver_info" in inspect.signature(AbstractConnection.__init__).parameters
    else {"lib_name": None, "lib_version": None}
)


@dataclass(frozen=True, slots=True)
class Connections:
    """Make connections to one Redis; opens nothing by itself."""

    config: RedisConfig

    def client(self) -> Any:
        """Return a client for workers and dispatchers, with a pool of its own; each answer has 5 s."""
        return redis.Redis(connection_pool=self._pool())

    def producer(self, *, timeout: float) -> Any:
        """Return a client with a pool of its own whose calls take at most `timeout` seconds, connecting included."""
        return redis.Redis(connection_pool=self._pool(deadline=timeout))

    def blocked(self) -> Any:
        """Return a connection for blocking commands; the caller waits on its socket with a timer of its own."""
        return self._pool().make_connection()

    def _pool(self, *, deadline: float | None = None) -> redis.ConnectionPool:
        """Return a pool whose steps have 5 s each, or all steps of a call `deadline` seconds together.

        Raises ImproperlyConfigured for what the client library does not understand.
        """
        try:
            described = self._described()
        except (ValueError, TypeError) as error:
            hint = getattr(error, "hint", "")
            raise ImproperlyConfigured(f"{self.config.setting} cannot be used: {error} {hint}".rstrip()) from None
        kwargs = {
            name: value
            for name, value in described.connection_kwargs.items()
            if name in _DESCRIPTION or name.startswith("ssl_")
        }
        kind, seconds = described.connection_class, deadline or COMMAND_TIMEOUT
        return redis.ConnectionPool(
            connection_class=kind if deadline is None else with_deadline(kind, seconds=seconds),
            max_connections=self.config.parameters.get("max_connections", ANY_NUMBER),
            protocol=2,
            decode_responses=False,
            socket_connect_timeout=seconds,
            socket_timeout=seconds,
            **({} if issubclass(kind, redis.SSLConnection) else _NO_INTRODUCTION),
            # One try: a script that ran and was repeated by the library could not be told from one that ran once.
            retry=Retry(NoBackoff(), 0),
            retry_on_error=[],
            **kwargs,
        )

    def _described(self) -> redis.ConnectionPool:
        config = self.config
        if config.factory is not None:
            made = config.factory()
            if isinstance(made, redis.Redis):
                theirs = made.connection_pool
                return redis.ConnectionPool(connection_class=theirs.connection_class, **theirs.connection_kwargs)
            config = RedisConfig.read(made, setting=config.setting)
            if config.factory is not None:
                raise SettingError(f"{config.setting} is a callable that returns a callable.")
        if config.url is not None:
            return redis.ConnectionPool.from_url(config.url, **config.parameters)
        # The client's constructor knows which connection class unix sockets and TLS need.
        return redis.Redis(**config.parameters).connection_pool
