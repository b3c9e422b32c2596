"""Cluster topology: the map of the slots, read from any node and corrected by the redirections of all."""

import random
import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

from redis import exceptions as redis_errors

from django_delayq.store.nodes.connections import Address, Connections
from django_delayq.store.nodes.errors import UNREACHABLE, NoServer, is_read_only, was_not_run
from django_delayq.store.nodes.node import Node
from django_delayq.store.routing.topology import Redirect, Topology
from django_delayq.store.slots import SLOTS

#: Seconds between two reads of the map, and seconds that a node has to reply.
_READ_AGAIN, _PATIENCE = 0.1, 1.0


class ClusterTopology(Topology):
    """The nodes of a Redis Cluster, or of Valkey's."""

    recovers = True

    def __init__(
        self,
        seeds: Sequence[Address],
        connections: Connections,
        *,
        producer_timeout: float,
        remap: Callable[[Address], Address] | None = None,
    ) -> None:
        """`remap` turns an address that a node announces into one that this process reaches."""
        super().__init__(connections, producer_timeout=producer_timeout)
        self._seeds = seeds
        self._remap = remap or (lambda address: address)
        self._lock = threading.Lock()
        #: Primaries, replicas and seeds: each of them can name the others.
        self._nodes: dict[Address, Node] = {seed: self._make_node(connections.at(seed)) for seed in seeds}
        #: The primary of each slot; None: no server has it. Empty before the map was read.
        self._owners: list[Node | None] = []
        #: The addresses of all primaries and replicas that have slots.
        self._members: set[Address] = set()
        #: Monotonic moment before which the map is not read again.
        self._read_again_at = 0.0

    def node(self, slot: int) -> Node:
        if not self._owners:
            self._read_map()
        if (owner := self._owners[slot]) is None:
            raise NoServer(f"no node of the cluster serves slot {slot}")
        return owner

    def nodes(self) -> list[Node]:
        if not self._owners:
            self._read_map()
        return sorted({owner for owner in self._owners if owner}, key=lambda node: node.connections.label)

    def strangers(self) -> list[str]:
        self.nodes()
        found = list[str]()
        for seed in self._seeds:
            node = self._nodes[seed]
            try:
                ranges = node.ask("CLUSTER", "SLOTS", timeout=_PATIENCE)
            except redis_errors.RedisError:
                # One that does not answer is no stranger.
                continue
            # `_node_at()` would add the nodes of the other cluster to those that this process asks for the map.
            named = {address for _, _, *servers in ranges for address in self._addresses(node, servers)}
            if self._members.isdisjoint(named):
                found.append(node.connections.label)
        return found

    def known_label(self, slot: int) -> str:
        owner = self._owners[slot] if self._owners else None
        return owner.connections.label if owner else super().known_label(slot)

    def follow(self, error: redis_errors.RedisError, slot: int, node: Node | None) -> Redirect | None:
        if isinstance(error, redis_errors.AskError):
            # An address without a host has that of the node which replied.
            target = self._node_at((error.host or (node.host if node else ""), error.port))
            is_moved = isinstance(error, redis_errors.MovedError)
            if is_moved and self._owners:
                self._owners[slot] = target
            return Redirect(target, asking=not is_moved)
        if not (is_read_only(error) or isinstance(error, (redis_errors.ClusterDownError, *UNREACHABLE))):
            return None
        if node is not None:
            node.disconnect_idle()
        self._read_map(rather_not=node)
        owner = self._owners[slot] if self._owners else None
        return Redirect(owner) if owner not in (None, node) and was_not_run(error) else None

    def disconnect_idle(self) -> None:
        for node in list(self._nodes.values()):
            node.disconnect_idle()

    def _node_at(self, announced: Address) -> Node:
        return self._at(self._remap(announced))

    def _at(self, address: Address) -> Node:
        # setdefault is atomic: two threads get the same node.
        return self._nodes.get(address) or self._nodes.setdefault(
            address, self._make_node(self.connections.at(address))
        )

    def _read_map(self, *, rather_not: Node | None = None) -> None:
        """Read the map from the first node that replies, `rather_not` last; without a reply the old map stays.

        Raises the library's errors if there is no old map.
        """
        with self._lock:
            # Threads whose commands failed at the same moment share a map.
            if self._owners and monotonic() < self._read_again_at:
                return
            known = list(self._nodes.values())
            random.shuffle(known)
            known.sort(key=lambda node: node is rather_not)
            for node in known:
                try:
                    self._store_map(node, node.ask("CLUSTER", "SLOTS", timeout=_PATIENCE))
                    break
                except redis_errors.RedisError as error:
                    failure = error
            else:
                if not self._owners:
                    raise failure
            self._read_again_at = monotonic() + _READ_AGAIN

    def _store_map(self, informant: Node, ranges: Sequence[Sequence[Any]]) -> None:
        """Store a reply of CLUSTER SLOTS: first slot, last slot, then the address of the primary and its replicas."""
        owners: list[Node | None] = [None] * SLOTS
        members = set[Address]()
        for first, last, *servers in ranges:
            addresses = self._addresses(informant, servers)
            owners[first : last + 1] = [self._at(addresses[0])] * (last + 1 - first)
            members.update(addresses)
        # If no primary answers, a replica has the map.
        for address in members:
            self._at(address)
        for address, node in list(self._nodes.items()):
            if address not in members and address not in self._seeds:
                del self._nodes[address]
                node.disconnect_idle()
        self._owners, self._members = owners, members

    def _addresses(self, informant: Node, servers: Sequence[Sequence[Any]]) -> list[Address]:
        """Return where this process reaches servers that a node names."""
        # A node that does not know its own address announces none.
        return [self._remap((host.decode() if host else informant.host, port)) for host, port, *_ in servers]
