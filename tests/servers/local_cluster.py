"""Local cluster: a Redis Cluster of this machine for tests, with masters that share the slots and a replica of each."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from django_delayq.store.slots import SLOTS
from django_delayq.testing.local_redis import LocalRedisServer, free_port
from tests.servers.certificates import Certificates
from tests.servers.server_group import ServerGroup
from tests.subprocesses import PATIENCE, until

#: Milliseconds after which nodes take a silent node for dead: while they start, or if a test waits for a failover,
#: which takes about three times as long; and otherwise, since on a busy machine a living node may be silent, too.
NODE_TIMEOUT, PATIENT_TIMEOUT = 500, 5_000
_OPTIONS = {
    "cluster-enabled": "yes",
    "cluster-node-timeout": str(NODE_TIMEOUT),
    "cluster-require-full-coverage": "no",
    # A replica that was cut off for a moment still takes over.
    "cluster-replica-validity-factor": "0",
    "repl-diskless-sync": "yes",
    "repl-diskless-sync-delay": "0",
}


class ClusterNode:
    """One server of a cluster."""

    def __init__(self, server: LocalRedisServer, *, port: int, tls: Certificates | None = None) -> None:
        """`port` is the one that clients use and other nodes announce."""
        self.server, self.port = server, port
        options: dict[str, Any] = {"ssl": True, **tls.client} if tls else {}
        self.client: Redis = Redis(host="127.0.0.1", port=port, protocol=2, socket_timeout=10, **options)
        self.id = self.ask("CLUSTER", "MYID").decode()

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self.port}"

    def ask(self, *command: Any) -> Any:
        """Return the reply of a command, as the library parses it."""
        return self.client.execute_command(*command)

    @property
    def is_master(self) -> bool:
        """Whether it says that it is a master."""
        return bool(self.client.execute_command("ROLE")[0] == b"master")


class LocalCluster(ServerGroup):
    """The nodes run from the `with` statement until its end. Masters come first in `nodes`."""

    def __init__(
        self,
        *,
        server: Path | None = None,
        masters: int = 3,
        replicas: int = 1,
        options: Mapping[str, str] | None = None,
        tls: Certificates | None = None,
    ) -> None:
        """`replicas` is the number of replicas of each master. With `tls` nodes and clients use TLS alone.

        With an option `cluster-node-timeout`, nodes keep it once they are ready.
        """
        self._program, self._masters, self._replicas = server, masters, replicas
        self._options = _OPTIONS | dict(options or {})
        self._node_timeout = int((options or {}).get("cluster-node-timeout", PATIENT_TIMEOUT))
        self._tls = tls
        if tls:
            self._options |= tls.server_options | {"tls-cluster": "yes", "tls-replication": "yes"}
        super().__init__()
        self.nodes: list[ClusterNode] = []

    def _start_all(self) -> None:
        """Start all nodes and return when each master accepts commands and each replica follows its master."""
        for _ in range(self._masters * (1 + self._replicas)):
            tls_port = free_port() if self._tls else 0
            options = self._options | ({"tls-port": str(tls_port)} if tls_port else {})
            server = LocalRedisServer(server=self._program, port=0, options=options)
            self._stack.enter_context(server)
            node = ClusterNode(server, port=tls_port or server.port or 0, tls=self._tls)
            self._stack.callback(node.client.close)
            self.nodes.append(node)
        masters = self.nodes[: self._masters]
        for index, master in enumerate(masters):
            first, end = (SLOTS * at // self._masters for at in (index, index + 1))
            master.ask("CLUSTER", "ADDSLOTS", *range(first, end))
            master.ask("CLUSTER", "SET-CONFIG-EPOCH", index + 1)
        for node in self.nodes[1:]:
            node.ask("CLUSTER", "MEET", "127.0.0.1", self.nodes[0].port)
        self._until(lambda: all(_known(node) == len(self.nodes) for node in self.nodes), "all nodes know each other")
        for index, replica in enumerate(self.nodes[self._masters :]):
            replica.ask("CLUSTER", "REPLICATE", masters[index % self._masters].id)
        self.wait_until_ready()

    @property
    def url(self) -> str:
        """The setting REDIS of a project that uses this cluster."""
        scheme = "rediss" if self._tls else "redis"
        return f"{scheme}+cluster://{','.join(node.address for node in self.nodes[:2])}"

    def wait_until_ready(self) -> None:
        """Wait until all nodes agree on the slots, and each replica follows its master. Then they are patient."""
        self._until(lambda: all(map(_is_ready, self.nodes)), "the cluster is up")
        self._until(lambda: len({_ranges(node) for node in self.nodes}) == 1, "all nodes agree on the slots")
        self.set_node_timeout(self._node_timeout)

    def set_node_timeout(self, ms: int) -> None:
        """Set after how many milliseconds the nodes that run take a silent node for dead."""
        for node in self.nodes:
            if node.server.pid is not None:
                node.ask("CONFIG", "SET", "cluster-node-timeout", ms)

    def master_of(self, slot: int) -> ClusterNode:
        """Return the master of a slot, as the first living node says."""
        for node in self.nodes:
            with suppress(RedisError):
                for first, last, port in _ranges(node):
                    if first <= slot <= last:
                        return next(each for each in self.nodes if each.port == port)
        raise AssertionError(f"no living node knows the master of slot {slot}")

    def replicas_of(self, master: ClusterNode) -> list[ClusterNode]:
        """Return the replicas of a master, as it says."""
        ports = {int(port) for _, port, _ in master.ask("ROLE")[2]}
        return [node for node in self.nodes if node.port in ports]

    def move_slot(self, slot: int, target: ClusterNode, *, keys_at_once: int = 10) -> float:
        """Move a slot with its keys to another master; return the seconds for which its keys were on both."""
        source = self.master_of(slot)
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
        began = time.monotonic()
        while keys := source.ask("CLUSTER", "GETKEYSINSLOT", slot, keys_at_once):
            source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 60_000, "KEYS", *keys)
        # The target first: if it learned it last, no node would have the slot for a moment.
        for node in (target, source):
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", target.id)
        seconds = time.monotonic() - began
        self._until(lambda: self.master_of(slot) is target, "the nodes know the new master of the slot")
        return seconds

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        until(condition, what=what, patience=PATIENCE, details=self._states)

    def _states(self) -> str:
        return "\n".join(node.ask("CLUSTER", "NODES").decode() for node in self.nodes)


def _known(node: ClusterNode) -> int:
    lines = node.ask("CLUSTER", "NODES").splitlines()
    return sum(b"handshake" not in line and b" connected" in line for line in lines)


def _is_ready(node: ClusterNode) -> bool:
    role = node.ask("ROLE")
    linked = role[0] == b"master" or role[3] == b"connected"
    return linked and b"cluster_state:ok" in node.ask("CLUSTER", "INFO")


def _ranges(node: ClusterNode) -> tuple[tuple[int, int, int], ...]:
    """Return the first slot, the last slot and the port of their master, as a node says."""
    return tuple(sorted((first, last, master[1]) for first, last, master, *_ in node.ask("CLUSTER", "SLOTS")))
