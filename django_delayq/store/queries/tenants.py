"""Tenants: how many jobs of each tenant wait in a queue, and which. Reads only."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django_delayq.job.codec import try_decode
from django_delayq.job.job import due_of_rank
from django_delayq.store.client.script import Script
from django_delayq.store.digests import queue_hash, tenant_digest
from django_delayq.store.queries.snapshot import Pause
from django_delayq.store.shard import Shard

_FIND_TENANTS = Script("find_tenants")
#: Tenants that one call reads, and parts of the reply for each.
_TENANTS, _PARTS = 100, 7
#: Ids that one call reads.
_IDS = 250


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantState:
    """The waiting jobs of one tenant in one queue."""

    digest: bytes
    #: None: it has no name, or no job of it can be read. The jobs without a tenant of a fair queue share one state.
    name: str | None = None
    waiting: int = 0
    #: Since when its next job has been due, µs since the epoch; None if none is ready.
    oldest_us: int | None = None
    paused: Pause | None = None


class TenantQueries:
    """API of one shard that reads tenants."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._due_first_us = shard.config.dispatcher.due_first_us

    def find(self, queue: str, tenant: str) -> TenantState:
        """Return the state of one tenant. One round trip, O(log n)."""
        (found,) = self.find_tenants(queue, only=tenant_digest(tenant))
        return found

    def iter(self, queue: str) -> Iterator[TenantState]:
        """Yield the tenants with waiting jobs, in no useful order. A round trip for each hundred."""
        after = b""
        while found := self.find_tenants(queue, after=after):
            yield from found
            after = found[-1].digest

    def find_tenants(self, queue: str, *, after: bytes = b"", only: bytes = b"") -> list[TenantState]:
        """Return up to a hundred tenants in the order of their digests, or the only one. O(log n) a tenant."""
        reply = self._shard.run(_FIND_TENANTS, [_TENANTS, after, only], queue=queue)
        return [self._state(*reply[at : at + _PARTS]) for at in range(0, len(reply), _PARTS)]

    def ids(self, queue: str, tenant: str) -> Iterator[list[bytes]]:
        """Yield the ids of the waiting jobs of a tenant, in batches of up to 250. O(log n + 250) each."""
        keys = self._shard.keys
        prefix = queue_hash(queue) + tenant_digest(tenant)
        # Scheduled jobs first: one that becomes ready meanwhile is found as such.
        for kind, at in ((b"\2", 15), (b"\0", 22), (b"\1", 22)):
            start, end = b"[" + kind + prefix, b"(" + kind + prefix + b"\xff" * 9
            while entries := self._shard.execute("ZRANGE", keys("tenant_jobs"), start, end, "BYLEX", "LIMIT", 0, _IDS):
                yield [entry[at : at + 12] for entry in entries]
                start = b"(" + entries[-1]

    def _state(
        self, digest: bytes, waiting: int, time_ms: Any, flags: Any, paused: bytes, raw_id: bytes, body: bytes | None
    ) -> TenantState:
        if body is None and raw_id:
            body = self._shard.execute("HGET", self._shard.keys("jobs"), raw_id)
        job, _ = try_decode(body, raw_id=raw_id, shard=self._shard.index, cipher=self._shard.cipher)
        oldest_us = None if time_ms == b"" else due_of_rank(time_ms, flags, due_first_us=self._due_first_us)
        return TenantState(
            digest=digest,
            name=job.tenant if job else None,
            waiting=waiting,
            oldest_us=oldest_us,
            paused=Pause.read(paused or None),
        )
