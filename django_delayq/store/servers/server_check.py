"""Server check: what is wrong with the servers that have shards, each by itself and all together."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from django_delayq.clock import SECOND_US
from django_delayq.exceptions import StoreError, StoreUnavailable
from django_delayq.store.client.at_once import at_once
from django_delayq.store.nodes.errors import with_store_errors
from django_delayq.store.nodes.node import Node
from django_delayq.store.routing.topology import Topology
from django_delayq.store.servers.server_info import SKEW_US, ServerInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedServer:
    """One server, or the lack of one."""

    #: Its address, for people; "": no server has these shards.
    address: str
    shards: tuple[int, ...]
    info: ServerInfo | None = None
    #: Why there is no `info`.
    error: StoreError | None = None

    @property
    def absence(self) -> str:
        """What is said if it does not answer."""
        numbers = ", ".join(map(str, self.shards))
        which = f"its {len(self.shards)} shards ({numbers})" if len(self.shards) > 1 else f"its shard ({numbers})"
        verb = "does not answer" if isinstance(self.error, StoreUnavailable) else "refuses"
        if not self.address:
            return f"No server has the shards {numbers}: assign their slots to a master. {self.error}"
        if not self.shards:
            return f"{self.address} {verb}; it has no shards. {self.error}"
        return f"{self.address} {verb}: the jobs of {which} wait until it is back. {self.error}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCheck:
    """All servers: one, the primary of Sentinels, or the masters of a cluster."""

    servers: Sequence[CheckedServer]
    #: Whether another server can take over the shards of one: in a cluster, and with Sentinels.
    has_failover: bool
    #: Replicas that must confirm each enqueue.
    wait_replicas: int = 0
    #: The addresses in REDIS that are in another cluster.
    strangers: Sequence[str] = ()

    @property
    def answering(self) -> list[tuple[CheckedServer, ServerInfo]]:
        """The servers that answered, with their facts."""
        return [(server, server.info) for server in self.servers if server.info is not None]

    @property
    def shards(self) -> list[int]:
        """The shards of these servers."""
        return sorted(shard for server, _ in self.answering for shard in server.shards)

    def fatal(self) -> Iterator[str]:
        """Yield the reasons why no command may start with these servers, each with its cure."""
        yield from self._of_each(lambda info: info.fatal())

    def errors(self) -> Iterator[str]:
        """Yield the temporary reasons why a server accepts or keeps no jobs, each with its cure; commands wait."""
        yield from (server.absence for server in self.servers if server.error and server.shards)
        yield from self._of_each(lambda info: info.errors())
        yield from self._of_each(self._about_wanted_replicas)
        if self.strangers:
            yield (
                f"REDIS names nodes of several clusters: {', '.join(self.strangers)} and the others do not know one "
                f"another, so each process may use another cluster. Name the nodes of one."
            )

    def warnings(self) -> Iterator[str]:
        """Yield what may fail later, each with its cure."""
        yield from (server.absence for server in self.servers if server.error and not server.shards)
        yield from self._of_each(lambda info: info.warnings())
        if self.has_failover:
            yield from self._of_each(self._about_failover, only_with_shards=True)
        yield from self._about_clocks()
        yield from self._about_shares()

    def at_start(self) -> Iterator[str]:
        """Yield what a process logs when it starts."""
        yield from (server.absence for server in self.servers if server.error)
        yield from self._of_each(lambda info: info.unknown_policy())

    def unchecked(self) -> Iterator[str]:
        """Yield what could not be checked, if the settings were requested."""
        places = [server.address for server, info in self.answering if not info.settings]
        if places:
            where = f" of {', '.join(places)}" if len(self.servers) > 1 else ""
            yield (
                f"Not checked{where}: how often fsync is called, min-replicas-to-write, min-replicas-max-lag and "
                f"cluster-require-full-coverage, because the user may not call CONFIG GET."
            )

    def _of_each(self, find: Callable[[ServerInfo], Iterator[str]], *, only_with_shards: bool = False) -> Iterator[str]:
        for server, info in self.answering:
            if server.shards or not only_with_shards:
                place = f"{server.address}: " if len(self.servers) > 1 else ""
                yield from (f"{place}{finding}" for finding in find(info))

    def _about_wanted_replicas(self, info: ServerInfo) -> Iterator[str]:
        if info.replicas < self.wait_replicas and not info.replica:
            yield (
                f"{info.replicas} replicas are connected, but DELAYQ['WAIT_REPLICAS'] is {self.wait_replicas}, so each "
                f"enqueue raises NotReplicated: start replicas, or lower the setting."
            )

    def _about_failover(self, info: ServerInfo) -> Iterator[str]:
        if info.replica:
            return
        settings = info.settings
        if 0 < self.wait_replicas < info.replicas:
            yield (
                f"{info.replicas} replicas are connected, but DELAYQ['WAIT_REPLICAS'] is {self.wait_replicas}: a "
                f"failover may promote one that does not have an accepted job, which is lost then. Set it to "
                f"{info.replicas}."
            )
        if not info.replicas:
            yield (
                "The Redis server has no replica, so nothing takes over when it is down: its jobs wait, and with its "
                "disk they are lost. Add a replica."
            )
        elif "0" in (settings.get("min-replicas-to-write"), settings.get("min-replicas-max-lag")):
            yield (
                "The Redis server accepts jobs without a replica: if it is cut off, a failover loses what it accepted "
                "since. Set min-replicas-to-write 1 and min-replicas-max-lag 10; then it stops after 10 s."
            )
        if info.in_cluster and settings.get("cluster-require-full-coverage") == "yes":
            yield (
                "cluster-require-full-coverage is yes: while one master is down, the whole cluster refuses commands. "
                "Set it to no; then only the shards of that master wait."
            )

    def _about_clocks(self) -> Iterator[str]:
        clocks = sorted(((info.ahead_us, info.within_us, server.address) for server, info in self.answering))
        if len(clocks) > 1:
            (slow_us, slow_within_us, slow), *_, (fast_us, fast_within_us, fast) = clocks
            if fast_us - slow_us - slow_within_us - fast_within_us > SKEW_US:
                yield (
                    f"The clock of {fast} is {(fast_us - slow_us) / SECOND_US:.1f} s ahead of that of {slow}. A job is "
                    f"due by the clock of its server; let NTP set all of them."
                )

    def _about_shares(self) -> Iterator[str]:
        """Yield whether some masters of a cluster have more shards than others."""
        shares = [(len(server.shards), server.address) for server in self.servers if server.address]
        if len(shares) < 2:
            return
        number, idle = sum(count for count, _ in shares), [address for count, address in shares if not count]
        counts = [count for count, _ in shares]
        if idle and number < len(shares):
            yield (
                f"No shard is on {', '.join(idle)}: DELAYQ['SHARDS'] is {number}, and the cluster has {len(shares)} "
                f"masters. With a multiple of {len(shares)} all of them have equal shares."
            )
        elif max(counts) - min(counts) > 1:
            listed = ", ".join(f"{address} has {count}" for count, address in shares)
            yield f"The shards lie unevenly: {listed}. Move slots, for example by redis-cli --cluster rebalance."


def check_servers(
    topology: Topology, slots: Mapping[int, int], *, wait_replicas: int, with_settings: bool
) -> ServerCheck:
    """Look at every server at the same time; `slots` are those of the shards. Two round trips.

    With `with_settings`, also at those of its settings that this user may read. Raises a `StoreError` if none answers.
    """
    place, user = partial(getattr, topology.connections, "label"), topology.connections.user
    shards: dict[Node, list[int]] = {node: [] for node in with_store_errors(topology.nodes, place=place, user=user)}
    without_server: dict[int, StoreError] = {}
    for shard, slot in slots.items():
        try:
            node = with_store_errors(partial(topology.node, slot), place=place, user=user)
            shards.setdefault(node, []).append(shard)
        except StoreUnavailable as error:
            without_server[shard] = error
    looks = [partial(_look_at, node, indexes, with_settings) for node, indexes in shards.items()]
    servers = at_once(looks)
    if without_server:
        reason = next(iter(without_server.values()))
        servers.append(CheckedServer(address="", shards=tuple(without_server), error=reason))
    check = ServerCheck(
        servers=servers,
        has_failover=topology.recovers,
        wait_replicas=wait_replicas,
        strangers=topology.strangers() if with_settings else (),
    )
    if not check.answering:
        raise next(server.error for server in servers if server.error)
    return check


def _look_at(node: Node, shards: Sequence[int], with_settings: bool) -> CheckedServer:
    address = node.connections.label
    try:
        info = ServerInfo.fetch(node, with_settings=with_settings)
    except StoreError as error:
        return CheckedServer(address=address, shards=tuple(shards), error=error)
    return CheckedServer(address=address, shards=tuple(shards), info=info)
