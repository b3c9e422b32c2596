"""Server: what a Redis server says of itself, and what of that is a danger to jobs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from time import time_ns
from typing import Any

from django_delayq.clock import SECOND_US
from django_delayq.exceptions import ScriptFault, StoreAuthError
from django_delayq.store.client.patched_versions import security_warning
from django_delayq.store.client.script import with_store_errors

#: The oldest with every command that our scripts call.
FLOOR = (6, 2)
#: µs by which this host's clock may differ from Redis's before moments given by `at()` are worth a warning.
_SKEW_US = SECOND_US
#: Share of `maxmemory` from which on a warning is due.
_NEARLY_FULL = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """What a server says of itself; empty where it does not tell."""

    #: "redis" or "valkey", and its own version.
    kind: str
    version: str
    #: The Redis version it is compatible with.
    redis_version: str
    policy: str
    #: Whether it writes an append-only file, and how often that is forced to disk ("" = it does not tell).
    appends: bool
    fsync: str = ""
    #: Whether it saves snapshots, as far as it tells.
    snapshots: bool = False
    #: What its last writes to disk ended with.
    disk_ok: bool
    replica: bool
    used_memory: int
    maxmemory: int
    #: µs its clock is ahead of this host's, and how far that can be off.
    ahead_us: int = 0
    within_us: int = 0

    @classmethod
    def fetch(cls, client: Any, *, closely: bool = False) -> "ServerInfo":
        """Ask a server; closely: also for settings that it may refuse to tell. Raises `StoreError`s."""
        info = with_store_errors(client.info, client)
        before = time_ns()
        seconds, microseconds = with_store_errors(client.time, client)
        after = time_ns()
        return replace(
            cls.of(info),
            fsync=_configured(client, "appendfsync") if closely else "",
            snapshots=bool(closely and _configured(client, "save")),
            ahead_us=seconds * SECOND_US + microseconds - (before + after) // 2_000,
            within_us=(after - before) // 2_000,
        )

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> "ServerInfo":
        """Read what INFO answered."""
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
        """What is kept on disk, in a few words."""
        if self.appends:
            return f"append-only file, fsync {self.fsync or 'unknown'}"
        return "snapshots only" if self.snapshots else "none"

    def fatal(self) -> Iterator[str]:
        """Yield why no command may start on this server, each with its cure."""
        if self._numbers and self._numbers < FLOOR:
            yield f"Redis {self.redis_version} is too old: django_delayq needs Redis 6.2 or later, or any Valkey."
        if self.policy.startswith(("allkeys", "volatile")):
            yield (
                f"The Redis server's maxmemory-policy is {self.policy}, which may evict waiting jobs; "
                f"set it to noeviction."
            )

    def errors(self) -> Iterator[str]:
        """Yield what keeps jobs from running or being kept now, each with its cure; commands wait for its end."""
        if self.replica:
            yield "The Redis server is a replica and takes no writes; DELAYQ['REDIS'] must lead to the primary."
        if not self.disk_ok:
            yield "The Redis server could not write to its disk the last time; see its log, and make room."

    def warnings(self) -> Iterator[str]:
        """Yield what may go wrong later, each with its cure."""
        if not self.policy:
            yield "The Redis server does not tell its maxmemory-policy; make sure that it is noeviction."
        if not self.appends:
            yield (
                f"The Redis server keeps no append-only file (what it saves: {self.persistence}): a crash or restart "
                f"loses jobs; set appendonly yes, and appendfsync everysec or always."
            )
        elif self.fsync == "no":
            yield "The Redis server leaves fsync to its host: a power loss loses up to 30 s; set appendfsync everysec."
        if self.maxmemory and self.used_memory > _NEARLY_FULL * self.maxmemory:
            share = self.used_memory / self.maxmemory
            yield f"Redis's memory is {share:.0%} full; beyond maxmemory it refuses new jobs: raise it."
        if abs(self.ahead_us) - self.within_us > _SKEW_US:
            yield (
                f"Redis's clock is {self.ahead_us / SECOND_US:+.1f} s from this host's: jobs are due by Redis's, so "
                f"moments given to at() come that much off; let NTP set both."
            )
        if old := security_warning(self.kind, self.version):
            yield old

    @property
    def _numbers(self) -> tuple[int, ...]:
        return tuple(int(part) for part in self.redis_version.split(".")[:2] if part.isdigit())


def _configured(client: Any, name: str) -> str:
    """Return a setting of the server, or nothing where it does not tell."""
    try:
        return str(with_store_errors(partial(client.config_get, name), client).get(name, ""))
    except (StoreAuthError, ScriptFault):
        # Managed servers have no CONFIG, and our own roles may not call it.
        return ""
