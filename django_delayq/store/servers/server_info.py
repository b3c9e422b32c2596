"""Server info: version, memory and persistence of a Redis server, and which of these endanger jobs."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from redis.exceptions import ResponseError

from django_delayq.clock import SECOND_US
from django_delayq.exceptions import see
from django_delayq.store.nodes.errors import with_store_errors
from django_delayq.store.nodes.node import Node
from django_delayq.store.nodes.resp import encode

#: The oldest version with every command that the scripts call.
FLOOR = (6, 2)
#: A larger difference between the clocks of this host and of Redis is worth a warning: `at()` uses the host's.
SKEW_US = SECOND_US
#: Settings that some findings need.
_SETTINGS = (
    *("appendfsync", "save", "min-replicas-to-write", "min-replicas-max-lag"),
    # Only in a cluster.
    "cluster-require-full-coverage",
)
_EVICTION = see("troubleshooting#redis-may-evict-jobs")
_FULL = see("troubleshooting#redis-takes-no-writes")
#: A larger share of `maxmemory` is worth a warning.
_NEARLY_FULL = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """Facts about a server; empty if it does not report them."""

    #: "redis" or "valkey", and its own version.
    kind: str
    version: str
    #: The Redis version it is compatible with.
    redis_version: str
    policy: str
    #: Whether it writes an append-only file.
    appends: bool
    #: Whether its last writes to disk succeeded.
    disk_ok: bool
    replica: bool
    #: Those that are connected to it.
    replicas: int
    in_cluster: bool = False
    used_memory: int
    maxmemory: int
    #: Commands of all clients in the last moments, and how many connections they have.
    commands_per_second: int = 0
    connections: int = 0
    #: µs by which its clock is ahead of this host's, and the error of that measurement.
    ahead_us: int = 0
    within_us: int = 0
    #: Those of `_SETTINGS` that were requested and this user may read; a server may not know all of them.
    settings: dict[str, str] = field(default_factory=dict)

    @classmethod
    def fetch(cls, node: Node, *, with_settings: bool = False) -> "ServerInfo":
        """Read INFO and TIME, and with `with_settings` those that this user may read, in two round trips.

        Raises `StoreError`.
        """
        label, user = node.connections.label, node.connections.user
        return with_store_errors(lambda: cls._fetch(node, with_settings), place=lambda: label, user=user)

    @classmethod
    def _fetch(cls, node: Node, with_settings: bool) -> "ServerInfo":
        names = list(_SETTINGS) if with_settings else []
        commands = [encode("INFO"), *(encode("CONFIG", "GET", name) for name in names)]
        info, *found = node.workers.send(b"".join(commands)).read_all(len(commands))
        if isinstance(info, ResponseError):
            raise info
        # Alone, so that the time of the round trip is the error of the measurement.
        before = time.time_ns()
        [moment] = node.workers.send(encode("TIME")).read_all(1)
        after = time.time_ns()
        if isinstance(moment, ResponseError):
            raise moment
        # Managed servers have no CONFIG, and the roles of `delayq_acl` may not call it.
        settings = {
            reply[0].decode(): reply[1].decode() for reply in found if isinstance(reply, list) and len(reply) == 2
        }
        return replace(
            cls.of(info),
            settings=settings,
            ahead_us=int(moment[0]) * SECOND_US + int(moment[1]) - (before + after) // 2_000,
            within_us=(after - before) // 2_000,
        )

    @classmethod
    def of(cls, text: bytes) -> "ServerInfo":
        """Read a reply of INFO."""
        lines = (line.partition(":") for line in text.decode(errors="replace").splitlines())
        info = {name: value for name, colon, value in lines if colon}
        valkey = "valkey_version" in info
        return cls(
            kind="valkey" if valkey else "redis",
            version=info.get("valkey_version" if valkey else "redis_version", ""),
            redis_version=info.get("redis_version", ""),
            policy=info.get("maxmemory_policy", ""),
            appends=bool(int(info.get("aof_enabled", 0))),
            disk_ok={info.get(key, "ok") for key in ("aof_last_write_status", "rdb_last_bgsave_status")} == {"ok"},
            replica=info.get("role") == "slave",
            replicas=int(info.get("connected_slaves", 0)),
            in_cluster=info.get("cluster_enabled") == "1",
            used_memory=int(info.get("used_memory", 0)),
            maxmemory=int(info.get("maxmemory", 0)),
            commands_per_second=int(info.get("instantaneous_ops_per_sec", 0)),
            connections=int(info.get("connected_clients", 0)),
        )

    @property
    def fsync(self) -> str:
        """When it calls fsync for its append-only file; "" if that is unknown."""
        return self.settings.get("appendfsync", "")

    @property
    def persistence(self) -> str:
        """How jobs are kept on disk, in a few words."""
        if self.appends:
            return f"append-only file, fsync {self.fsync or 'unknown'}"
        return "snapshots only" if self.settings.get("save") else "none"

    def fatal(self) -> Iterator[str]:
        """Yield the reasons why no command may start on this server, each with its cure."""
        if self._numbers and self._numbers < FLOOR:
            yield f"Redis {self.redis_version} is too old: django_delayq needs Redis 6.2 or later, or any Valkey."
        if self.policy.startswith(("allkeys", "volatile")):
            yield (
                f"The Redis server's maxmemory-policy is {self.policy}, which may evict waiting jobs; "
                f"set it to noeviction. {_EVICTION}"
            )

    def errors(self) -> Iterator[str]:
        """Yield the temporary reasons why the server accepts or keeps no jobs, each with its cure; commands wait."""
        if self.replica:
            yield (f"The Redis server is a replica and refuses writes; DELAYQ['REDIS'] must name the primary. {_FULL}")
        if not self.disk_ok:
            yield (f"The Redis server failed to write to its disk; see its log, and free some space. {_FULL}")

    def warnings(self) -> Iterator[str]:
        """Yield what may fail later, each with its cure."""
        yield from self.unknown_policy()
        if not self.appends:
            yield (
                f"The Redis server keeps no append-only file (persistence: {self.persistence}): a crash or restart "
                f"loses jobs; set appendonly yes, and appendfsync everysec or always."
            )
        elif self.fsync == "no":
            yield "The Redis server never calls fsync: a power failure loses up to 30 s; set appendfsync everysec."
        if self.maxmemory and self.used_memory > _NEARLY_FULL * self.maxmemory:
            share = self.used_memory / self.maxmemory
            yield f"Redis's memory is {share:.0%} full; at maxmemory it refuses new jobs: raise maxmemory. {_FULL}"
        if abs(self.ahead_us) - self.within_us > SKEW_US:
            yield (
                f"Redis's clock differs from this host's by {self.ahead_us / SECOND_US:+.1f} s. It decides when jobs "
                f"are due, so times given to at() are off by as much; let NTP set both. "
                f"{see('troubleshooting#jobs-start-late')}"
            )

    def unknown_policy(self) -> Iterator[str]:
        """Yield a warning if nobody knows whether the server evicts jobs."""
        if not self.policy:
            yield f"The Redis server does not report its maxmemory-policy; make sure that it is noeviction. {_EVICTION}"

    @property
    def _numbers(self) -> tuple[int, ...]:
        return tuple(int(part) for part in self.redis_version.split(".")[:2] if part.isdigit())
