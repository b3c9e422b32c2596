"""Server info: version, memory and persistence of a Redis server, and which of these endanger jobs."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from django_delayq.clock import SECOND_US
from django_delayq.exceptions import ScriptFault, StoreAuthError
from django_delayq.store.nodes.errors import with_store_errors
from django_delayq.store.nodes.node import Node

#: The oldest version with every command that the scripts call.
FLOOR = (6, 2)
#: A larger difference between the clocks of this host and of Redis is worth a warning: `at()` uses the host's.
_SKEW_US = SECOND_US
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
    #: Whether it writes an append-only file, and when it calls fsync ("" = unknown).
    appends: bool
    fsync: str = ""
    #: Whether it is known to save snapshots.
    snapshots: bool = False
    #: Whether its last writes to disk succeeded.
    disk_ok: bool
    replica: bool
    used_memory: int
    maxmemory: int
    #: µs by which its clock is ahead of this host's, and the error of that measurement.
    ahead_us: int = 0
    within_us: int = 0

    @classmethod
    def fetch(cls, node: Node, *, with_config: bool = False) -> "ServerInfo":
        """Read INFO and TIME, and with `with_config` settings too, if this user may read them. Raises `StoreError`."""
        client, user = node.workers.client, node.connections.user
        info = with_store_errors(client.info, user=user)
        before = time.time_ns()
        seconds, microseconds = with_store_errors(client.time, user=user)
        after = time.time_ns()
        return replace(
            cls.of(info),
            fsync=_configured(node, "appendfsync") if with_config else "",
            snapshots=bool(with_config and _configured(node, "save")),
            ahead_us=seconds * SECOND_US + microseconds - (before + after) // 2_000,
            within_us=(after - before) // 2_000,
        )

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> "ServerInfo":
        """Read a reply of INFO."""
        valkey = "valkey_version" in info
        return cls(
            kind="valkey" if valkey else "redis",
            version=str(info.get("valkey_version" if valkey else "redis_version", "")),
            redis_version=str(info.get("redis_version", "")),
            policy=str(info.get("maxmemory_policy", "")),
            appends=bool(int(info.get("aof_enabled", 0))),
            disk_ok={str(info.get(key, "ok")) for key in ("aof_last_write_status", "rdb_last_bgsave_status")} == {"ok"},
            replica=info.get("role") == "slave",
            used_memory=int(info.get("used_memory", 0)),
            maxmemory=int(info.get("maxmemory", 0)),
        )

    @property
    def persistence(self) -> str:
        """How jobs are kept on disk, in a few words."""
        if self.appends:
            return f"append-only file, fsync {self.fsync or 'unknown'}"
        return "snapshots only" if self.snapshots else "none"

    def fatal(self) -> Iterator[str]:
        """Yield the reasons why no command may start on this server, each with its cure."""
        if self._numbers and self._numbers < FLOOR:
            yield f"Redis {self.redis_version} is too old: django_delayq needs Redis 6.2 or later, or any Valkey."
        if self.policy.startswith(("allkeys", "volatile")):
            yield (
                f"The Redis server's maxmemory-policy is {self.policy}, which may evict waiting jobs; "
                f"set it to noeviction."
            )

    def errors(self) -> Iterator[str]:
        """Yield the temporary reasons why the server accepts or keeps no jobs, each with its cure; commands wait."""
        if self.replica:
            yield "The Redis server is a replica and refuses writes; DELAYQ['REDIS'] must name the primary."
        if not self.disk_ok:
            yield "The Redis server failed to write to its disk; see its log, and free some space."

    def warnings(self) -> Iterator[str]:
        """Yield what may fail later, each with its cure."""
        if not self.policy:
            yield "The Redis server does not report its maxmemory-policy; make sure that it is noeviction."
        if not self.appends:
            yield (
                f"The Redis server keeps no append-only file (persistence: {self.persistence}): a crash or restart "
                f"loses jobs; set appendonly yes, and appendfsync everysec or always."
            )
        elif self.fsync == "no":
            yield "The Redis server never calls fsync: a power failure loses up to 30 s; set appendfsync everysec."
        if self.maxmemory and self.used_memory > _NEARLY_FULL * self.maxmemory:
            share = self.used_memory / self.maxmemory
            yield f"Redis's memory is {share:.0%} full; at maxmemory it refuses new jobs: raise maxmemory."
        if abs(self.ahead_us) - self.within_us > _SKEW_US:
            yield (
                f"Redis's clock differs from this host's by {self.ahead_us / SECOND_US:+.1f} s. It decides when jobs "
                f"are due, so times given to at() are off by as much; let NTP set both."
            )

    @property
    def _numbers(self) -> tuple[int, ...]:
        return tuple(int(part) for part in self.redis_version.split(".")[:2] if part.isdigit())


def _configured(node: Node, name: str) -> str:
    """Return a setting of the server, or "" if it cannot be read."""
    try:
        found = with_store_errors(partial(node.workers.client.config_get, name), user=node.connections.user)
        return str(found.get(name, ""))
    except (StoreAuthError, ScriptFault):
        # Managed servers have no CONFIG, and the roles of `delayq_acl` may not call it.
        return ""
