"""Connections: the clients and blocking connections of a RedisConfig, to the server that it names or to another one.

The defaults of the client library are not used: it repeats commands silently, and its timeouts end a blocking pop.
"""

import inspect
from dataclasses import dataclass, replace
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.connection import AbstractConnection
from redis.retry import Retry

from django_delayq.conf.redis_settings import RedisConfig
from django_delayq.store.nodes.connection_cache import ANY_NUMBER
from django_delayq.store.nodes.deadline import with_deadline
from django_delayq.store.nodes.errors import GreetingFailed, NoServer
from django_delayq.store.nodes.pools.configured_pool import as_improperly_configured, pool_of, resolved
from django_delayq.store.nodes.pools.own_pool import OwnPool

Address = tuple[str, int]

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
    #: Host and port of a server that the configuration does not name itself: a node of a cluster, a primary that
    #: Sentinels watch.
    address: Address | None = None
    #: Refuse a server that is a replica, at each new connection: Sentinels may name one a moment after its demotion.
    only_primary: bool = False
    #: What the configuration describes; None: it is read for each pool, because a callable may return another password.
    described: redis.ConnectionPool | None = None

    def at(self, address: Address, *, only_primary: bool = False) -> "Connections":
        """Return those to the server at another address."""
        return replace(self, address=address, only_primary=only_primary)

    @property
    def label(self) -> str:
        """The address, for people."""
        return f"{self.address[0]}:{self.address[1]}" if self.address else self.config.display_url

    def user(self) -> str:
        """Return the name of the user in Redis."""
        return self.configured_pool().connection_kwargs.get("username") or "default"

    def client(self) -> Any:
        """Return a client for workers and dispatchers, with a pool of its own; each reply may take 5 s."""
        return redis.Redis(connection_pool=self._pool())

    def producer(self, *, timeout: float) -> Any:
        """Return a client with a pool of its own whose calls take at most `timeout` seconds, connecting included."""
        return redis.Redis(connection_pool=self._pool(deadline=timeout))

    def blocked(self) -> Any:
        """Return a connection for blocking commands; the caller waits on its socket."""
        return self._pool().make_connection()

    def configured_pool(self) -> redis.ConnectionPool:
        """Return the pool that the setting describes, with the library's own behaviour.

        Raises ImproperlyConfigured if the client library does not understand the setting.
        """
        if self.described is not None:
            return self.described
        with as_improperly_configured(self.config):
            return pool_of(resolved(self.config))

    def _pool(self, *, deadline: float | None = None) -> redis.ConnectionPool:
        """Return a pool whose steps may take 5 s each, or all steps of a call `deadline` seconds together."""
        configured = self.configured_pool()
        kwargs = {
            name: value
            for name, value in configured.connection_kwargs.items()
            if name in _ALLOWED or name.startswith("ssl_")
        }
        kind, seconds = configured.connection_class, deadline or COMMAND_TIMEOUT
        if self.address:
            kwargs |= dict(zip(("host", "port"), self.address, strict=True))
            # The library's connections that ask Sentinels by themselves need their pool.
            kind = redis.SSLConnection if issubclass(kind, redis.SSLConnection) else redis.Connection
        is_tls = issubclass(kind, redis.SSLConnection)
        return OwnPool(
            connection_class=kind if deadline is None else with_deadline(kind, seconds=seconds),
            max_connections=self.config.parameters.get("max_connections", ANY_NUMBER),
            protocol=2,
            decode_responses=False,
            socket_connect_timeout=seconds,
            socket_timeout=seconds,
            redis_connect_func=_connect_to_primary if self.only_primary else _greet if is_tls else None,
            **({} if is_tls else _NO_CLIENT_INFO),
            # One try: otherwise nobody could know whether a script ran once or twice.
            retry=Retry(NoBackoff(), 0),
            retry_on_error=[],
            **kwargs,
        )


def _greet(connection: Any) -> None:
    try:
        connection.on_connect()
    except redis.ConnectionError as error:
        # Subclasses are replies. In TLS 1.3 a server refuses a certificate after the handshake, as the client sees it.
        if type(error) is not redis.ConnectionError or not isinstance(connection, redis.SSLConnection):
            raise
        raise GreetingFailed(
            f"the server closed a new TLS connection ({error}); if it wants a certificate from its clients, check "
            f"ssl_certfile and ssl_keyfile"
        ) from error


def _connect_to_primary(connection: Any) -> None:
    _greet(connection)
    connection.send_command("ROLE")
    role = connection.read_response()[0]
    if role != b"master":
        raise NoServer(f"{connection.host}:{connection.port} is not the primary: its role is {role.decode()}")
