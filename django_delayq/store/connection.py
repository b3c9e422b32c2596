"""Connections: clients and blocked connections made from a RedisConfig, with pools of our own.

The library's defaults are not ours: it repeats commands silently, and its timeouts know nothing of a blocking pop.
"""

from dataclasses import dataclass
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from django_delayq.redis_config import RedisConfig

#: Seconds a Redis command of a worker or dispatcher may take.
COMMAND_TIMEOUT = 5.0
#: Part of a caller's time that connecting may take; the rest is for the answer.
_CONNECT_SHARE = 0.4


@dataclass(frozen=True, slots=True)
class Connections:
    """Make connections to one Redis; opens nothing by itself."""

    config: RedisConfig

    def client(self, *, timeout: float) -> Any:
        """Return a client with a pool of its own whose calls take at most `timeout` seconds, connecting included."""
        return redis.Redis(connection_pool=self._pool(timeout))

    def blocked(self, *, timeout: float) -> Any:
        """Return a connection for blocking commands; the caller waits on its socket with a timer of its own."""
        return self._pool(timeout).make_connection()

    def _pool(self, timeout: float) -> redis.ConnectionPool:
        settings = {
            "protocol": 2,
            "decode_responses": False,
            "socket_connect_timeout": timeout * _CONNECT_SHARE,
            "socket_timeout": timeout * (1 - _CONNECT_SHARE),
            # One try: a script that ran and was repeated by the library could not be told from one that ran once.
            "retry": Retry(NoBackoff(), 0),
            "retry_on_error": [],
        }
        pool = self._described()
        # Last, since a URL's query or a description of somebody else's may say otherwise.
        pool.connection_kwargs.update(settings)
        return pool

    def _described(self) -> redis.ConnectionPool:
        config = self.config
        if config.factory is not None:
            made = config.factory()
            if isinstance(made, redis.Redis):
                theirs = made.connection_pool
                return redis.ConnectionPool(connection_class=theirs.connection_class, **theirs.connection_kwargs)
            config = RedisConfig.read(made)
        if config.url is not None:
            return redis.ConnectionPool.from_url(config.url, **config.parameters)
        # The client's constructor knows which connection class unix sockets and TLS need.
        return redis.Redis(**config.parameters).connection_pool
