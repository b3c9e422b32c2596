"""Sentinel topology: the primary of a service, as the Sentinels name it."""

import re
import threading
from time import monotonic

from redis import exceptions as redis_errors
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

from django_delayq.store.nodes.connections import Connections
from django_delayq.store.nodes.errors import UNREACHABLE, is_read_only, was_not_run
from django_delayq.store.nodes.node import Node
from django_delayq.store.routing.topology import Redirect, Topology

#: Seconds between two questions to the Sentinels for the address of the primary. A replaced primary accepts commands
#: for about ten seconds, until the Sentinels make it a replica. Then it drops what it accepted.
_LOOK_AGAIN = 1.0
#: Seconds between two questions after errors, and seconds that one Sentinel has to reply.
_AFTER_ERROR, _PATIENCE = 0.1, 0.5
#: How the library names a Sentinel in front of its error.
_CLIENT = re.compile(r"<redis\..*?\)> - ")


class SentinelTopology(Topology):
    """The primary that a group of Sentinels watches, with all slots."""

    recovers = True

    def __init__(self, manager: Sentinel, service: str, connections: Connections, *, producer_timeout: float) -> None:
        super().__init__(connections, producer_timeout=producer_timeout)
        self._manager = _impatient(manager)
        self._service = service
        self._lock = threading.Lock()
        self._primary: Node | None = None
        #: Monotonic moments of the next question, and before which there is none.
        self._look_at, self._not_before = 0.0, 0.0

    def node(self, slot: int) -> Node:
        if self._primary is None or monotonic() >= self._look_at:
            self._look()
        assert self._primary is not None
        return self._primary

    def known_label(self, slot: int) -> str:
        return self._primary.connections.label if self._primary else super().known_label(slot)

    def follow(self, error: redis_errors.RedisError, slot: int, node: Node | None) -> Redirect | None:
        if not (is_read_only(error) or isinstance(error, UNREACHABLE)):
            return None
        if node is not None:
            node.disconnect_idle()
        self._look()
        return Redirect(self._primary) if self._primary not in (None, node) and was_not_run(error) else None

    def disconnect_idle(self) -> None:
        if self._primary is not None:
            self._primary.disconnect_idle()

    def _look(self) -> None:
        """Ask the Sentinels for the primary; without a reply it stays the same.

        Raises the library's errors if none is known.
        """
        with self._lock:
            # Threads whose commands failed at the same moment share an answer.
            if self._primary is not None and monotonic() < self._not_before:
                return
            try:
                address = self._manager.discover_master(self._service)
            except redis_errors.RedisError as error:
                if self._primary is None:
                    # The library shows each Sentinel by all parameters of its connections.
                    raise type(error)(_CLIENT.sub("", str(error))) from error
            else:
                if self._primary is None or address != self._primary.connections.address:
                    primary = self._make_node(self.connections.at(address, only_primary=True))
                    before, self._primary = self._primary, primary
                    if before is not None:
                        before.disconnect_idle()
            now = monotonic()
            self._look_at, self._not_before = now + _LOOK_AGAIN, now + _AFTER_ERROR


def _impatient(manager: Sentinel) -> Sentinel:
    """Return a Sentinel client that goes on to the next Sentinel soon: the library's own may try one for minutes."""
    addresses = [client.connection_pool.connection_kwargs for client in manager.sentinels]
    return Sentinel(
        [(each["host"], each["port"]) for each in addresses],
        min_other_sentinels=manager.min_other_sentinels,
        sentinel_kwargs={
            **manager.sentinel_kwargs,
            "socket_timeout": _PATIENCE,
            "socket_connect_timeout": _PATIENCE,
            "retry": Retry(NoBackoff(), 0),
        },
    )
