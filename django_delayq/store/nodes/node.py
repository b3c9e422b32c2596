"""Node: one Redis server, and the connections of this process to it."""

from time import monotonic
from typing import Any

from django.utils.functional import cached_property
from redis import exceptions as redis_errors

from django_delayq.store.nodes.connection_cache import ConnectionCache
from django_delayq.store.nodes.connections import Connections
from django_delayq.store.nodes.resp import Part, encode
from django_delayq.store.nodes.shared_writes import SharedWrites

#: Seconds between two PINGs to a server that could not be reached, and the timeout of a PING in seconds.
_ASK_AGAIN, _PATIENCE = 2.0, 0.1


class Node:
    """One server. Opens nothing by itself. Thread-safe."""

    def __init__(self, connections: Connections, *, producer_timeout: float) -> None:
        self.connections = connections
        self._producer_timeout = producer_timeout
        #: Monotonic moment from which `is_down` asks; 0: it was reached.
        self._ask_at = 0.0

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

    @cached_property
    def shared_writes(self) -> SharedWrites:
        """Commands of workers and dispatchers that can wait for those of other shards."""
        return SharedWrites(self.workers)

    @property
    def is_down(self) -> bool:
        """Whether the last command did not reach it, and it does not reply yet. Asks once in 2 s, for 0.1 s."""
        if not self._ask_at or monotonic() < self._ask_at:
            return self._ask_at > 0
        # Before the question: other threads do not ask meanwhile.
        self.record(reached=False)
        try:
            self.ask("PING", timeout=_PATIENCE)
        except redis_errors.RedisError:
            return True
        self.record(reached=True)
        return False

    def record(self, *, reached: bool) -> None:
        """Keep in mind whether a command reached it."""
        self._ask_at = 0.0 if reached else monotonic() + _ASK_AGAIN

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
