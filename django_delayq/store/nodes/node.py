"""Node: one Redis server, and the connections of this process to it."""

from typing import Any

from django.utils.functional import cached_property

from django_delayq.store.nodes.connection_cache import ConnectionCache
from django_delayq.store.nodes.connections import Connections
from django_delayq.store.nodes.resp import Part, encode


class Node:
    """One server. Opens nothing by itself. Thread-safe."""

    def __init__(self, connections: Connections, *, producer_timeout: float) -> None:
        self.connections = connections
        self._producer_timeout = producer_timeout

    def __repr__(self) -> str:
        return f"<Node {self.connections.label}>"

    @property
    def host(self) -> str:
        """The host of its address, "" if the configuration names the server in another way."""
        return self.connections.address[0] if self.connections.address else ""

    # Django's cached_property: before Python 3.12 that of functools holds a lock, and a fork copies it locked.
    @cached_property
    def workers(self) -> ConnectionCache:
        """The connections of workers and dispatchers: a command may take 5 s."""
        return ConnectionCache(self.connections.client())

    @cached_property
    def producers(self) -> ConnectionCache:
        """The connections of everybody else: a call may take ENQUEUE_TIMEOUT."""
        return ConnectionCache(self.connections.producer(timeout=self._producer_timeout))

    def ask(self, *command: Part, timeout: float) -> Any:
        """Return the reply of a command on a connection of its own. Raises the library's errors."""
        connection = self.connections.producer(timeout=timeout).connection_pool.make_connection()
        try:
            connection.send_packed_command([encode(*command)])
            return connection.read_response()
        finally:
            connection.disconnect()

    def disconnect_idle(self) -> None:
        """Close the connections that are not in use; the next use opens new ones."""
        # Those that were never used are not made for this.
        for name in ("workers", "producers"):
            if (cache := self.__dict__.get(name)) is not None:
                cache.disconnect_idle()
