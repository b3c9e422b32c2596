"""Connections: the clients and blocking connections of a RedisConfig.

The defaults of the client library are not used: it repeats commands silently, and its timeouts end a blocking pop.
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
#: The connection settings that a project may choose: the server, the user, TCP keepalive. Timeouts, retries, protocol,
#: decoding and caching are fixed, whatever a URL or a project's own client contains.
_ALLOWED = frozenset(
    ("host", "port", "path", "db", "username", "password", "credential_provider", "client_name")
    + ("socket_keepalive", "socket_keepalive_options", "socket_type")
)
#: Without CLIENT SETINFO, which takes two more replies before the first command. The parameter was renamed. TLS needs
#: a reply first: the tickets that follow the handshake look like a reply that no command requested.
_NO_CLIENT_INFO: dict[str, Any] = (
    {"driver_info": None}
    if "driver_info" in inspect.signature(AbstractConnection.__init__).parameters
    else {"lib_name": None, "lib_version": None}
)


@dataclass(frozen=True, slots=True)
class Connections:
    """Make clients and connections of one Redis. Opens nothing by itself."""

    config: RedisConfig

    def client(self) -> Any:
        """Return a client for workers and dispatchers, with a pool of its own; each reply may take 5 s."""
        return redis.Redis(connection_pool=self._pool())

    def producer(self, *, timeout: float) -> Any:
        """Return a client with a pool of its own whose calls take at most `timeout` seconds, connecting included."""
        return redis.Redis(connection_pool=self._pool(deadline=timeout))

    def blocked(self) -> Any:
        """Return a connection for blocking commands; the caller waits on its socket."""
        return self._pool().make_connection()

    def _pool(self, *, deadline: float | None = None) -> redis.ConnectionPool:
        """Return a pool whose steps may take 5 s each, or all steps of a call `deadline` seconds together.

        Raises ImproperlyConfigured if the client library does not understand the setting.
        """
        try:
            configured = self._configured_pool()
        except (ValueError, TypeError) as error:
            hint = getattr(error, "hint", "")
            raise ImproperlyConfigured(f"{self.config.setting} cannot be used: {error} {hint}".rstrip()) from None
        kwargs = {
            name: value
            for name, value in configured.connection_kwargs.items()
            if name in _ALLOWED or name.startswith("ssl_")
        }
        kind, seconds = configured.connection_class, deadline or COMMAND_TIMEOUT
        return redis.ConnectionPool(
            connection_class=kind if deadline is None else with_deadline(kind, seconds=seconds),
            max_connections=self.config.parameters.get("max_connections", ANY_NUMBER),
            protocol=2,
            decode_responses=False,
            socket_connect_timeout=seconds,
            socket_timeout=seconds,
            **({} if issubclass(kind, redis.SSLConnection) else _NO_CLIENT_INFO),
            # One try: otherwise nobody could know whether a script ran once or twice.
            retry=Retry(NoBackoff(), 0),
            retry_on_error=[],
            **kwargs,
        )

    def _configured_pool(self) -> redis.ConnectionPool:
        config = self.config
        if config.factory is not None:
            made = config.factory()
            if isinstance(made, redis.Redis):
                pool = made.connection_pool
                return redis.ConnectionPool(connection_class=pool.connection_class, **pool.connection_kwargs)
            config = RedisConfig.read(made, setting=config.setting)
            if config.factory is not None:
                raise SettingError(f"{config.setting} is a callable that returns a callable.")
        if config.url is not None:
            return redis.ConnectionPool.from_url(config.url, **config.parameters)
        # The constructor of the client chooses the connection class for unix sockets and TLS.
        return redis.Redis(**config.parameters).connection_pool
