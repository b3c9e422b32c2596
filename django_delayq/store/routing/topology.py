"""Topology: which server serves each slot. Here it is always the same one; subclasses look for it."""

from dataclasses import dataclass

from django.utils.functional import cached_property
from redis import exceptions as redis_errors

from django_delayq.store.nodes.connections import Connections
from django_delayq.store.nodes.errors import is_read_only
from django_delayq.store.nodes.node import Node


@dataclass(frozen=True, slots=True)
class Redirect:
    """Where a refused command is to be sent."""

    node: Node
    #: The slot is about to move there: ASKING must go before each command.
    asking: bool = False


class Topology:
    """One server with all slots. Thread-safe; opens nothing by itself."""

    #: Whether a refused command can succeed within seconds without anybody's help.
    recovers = False

    def __init__(self, connections: Connections, *, producer_timeout: float) -> None:
        self.connections = connections
        self.producer_timeout = producer_timeout

    def node(self, slot: int) -> Node:
        """Return the server of a slot. May ask other servers; raises the library's errors then."""
        return self._only_node

    def nodes(self) -> list[Node]:
        """Return all servers that have shards. Raises the library's errors."""
        return [self.node(0)]

    def strangers(self) -> list[str]:
        """Return the addresses in REDIS whose servers know none of the others, for people. Asks each of them."""
        return []

    def known_label(self, slot: int) -> str:
        """Return the address of the server of a slot for people, as far as it is known; asks nobody."""
        return self.connections.label

    def follow(self, error: redis_errors.RedisError, slot: int, node: Node | None) -> Redirect | None:
        """Return where to send a command of a slot again that failed; None if it may have run, or must wait.

        Looks for another server of the slot if the error says that there may be one. `node` is the server to which the
        command was sent; None: there was none.
        """
        if is_read_only(error) and node is not None:
            # The server's name may lead to another primary by now; open connections never will.
            node.disconnect_idle()
        return None

    def disconnect_idle(self) -> None:
        """Close the connections that are not in use; the next use opens new ones."""
        self._only_node.disconnect_idle()

    # Django's cached_property: before Python 3.12 that of functools holds a lock, and a fork copies it locked.
    @cached_property
    def _only_node(self) -> Node:
        return self._make_node(self.connections)

    def _make_node(self, connections: Connections) -> Node:
        return Node(connections, producer_timeout=self.producer_timeout)
