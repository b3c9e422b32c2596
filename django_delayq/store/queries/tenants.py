"""Tenants: how many jobs of each tenant wait in a queue, which, and who paused it. Reads only."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django_delayq.job.body.codec import try_decode
from django_delayq.job.job import due_of_rank
from django_delayq.store.client.script import Script
from django_delayq.store.digests import queue_hash, tenant_digest
from django_delayq.store.queries.snapshot import Pause
from django_delayq.store.shard import Shard

_FIND_TENANTS = Script("find_tenants")
#: Tenants that one call reads, and parts of the reply for each.
_TENANTS, _PARTS = 100, 7
#: Records of tenants that one call scans for pauses. Redis takes about 0.3 ms for them.
_SCANNED = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantState:
    """The waiting jobs of one tenant in one queue."""

    digest: bytes
    #: None: it has no name, or no job of it can be read and the record of its pause has none either. The jobs without a
    #: tenant of a fair queue share one state.
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
        while True:
            found = self.find_tenants(queue, after=after)
            yield from found
            if len(found) < _TENANTS:
                return
            after = found[-1].digest

    def find_tenants(self, queue: str, *, after: bytes = b"", only: bytes = b"") -> list[TenantState]:
        """Return up to a hundred tenants in the order of their digests, or the only one. O(log n) a tenant."""
        reply = self._shard.run(_FIND_TENANTS, [_TENANTS, after, only], queue=queue)
        return [self._state(*reply[at : at + _PARTS]) for at in range(0, len(reply), _PARTS)]

    def paused(self, queue: str) -> Iterator[list[TenantState]]:
        """Yield the paused tenants, also those without jobs, whose waiting jobs are not counted. One may come twice.

        A list for each round trip, often an empty one: each scans a thousand of the shard's records of tenants. There
        is one for each tenant that is served, and each of its priorities.
        """
        prefix, cursor = queue_hash(queue), b"0"
        pattern = b"".join(b"\\" + bytes((byte,)) for byte in prefix) + b"?" * 8
        while True:
            cursor, found = self._shard.execute(
                "HSCAN", self._shard.keys("tenants"), cursor, "MATCH", pattern, "COUNT", _SCANNED
            )
            yield [
                TenantState(digest=field[len(prefix) :], name=_paused_name(record), paused=_pause(record))
                for field, record in zip(found[::2], found[1::2], strict=True)
            ]
            if cursor == b"0":
                return

    def ids(
        self, queue: str, tenant: str, *, after: bytes = b"", most: int = 250
    ) -> Iterator[tuple[list[bytes], bytes]]:
        """Yield the ids of the waiting jobs of a tenant, in batches of up to `most`. O(log n + most) each.

        Each comes with the last entry of the batch: a later call continues `after` it.
        """
        keys = self._shard.keys
        prefix = queue_hash(queue) + tenant_digest(tenant)
        # Scheduled jobs first: one that becomes ready meanwhile is found as such.
        kinds = [b"\2", b"\0", b"\1"]
        for kind in kinds[kinds.index(after[:1]) if after else 0 :]:
            at = 15 if kind == b"\2" else 22
            start = b"(" + after if after[:1] == kind else b"[" + kind + prefix
            end = b"(" + kind + prefix + b"\xff" * 9
            while entries := self._shard.execute("ZRANGE", keys("tenant_jobs"), start, end, "BYLEX", "LIMIT", 0, most):
                yield [entry[at : at + 12] for entry in entries], entries[-1]
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
            name=job.tenant if job else _paused_name(paused),
            waiting=waiting,
            oldest_us=oldest_us,
            paused=_pause(paused),
        )


def _pause(record: bytes) -> Pause | None:
    return Pause.read(record.partition(b"\xff")[0]) if record else None


def _paused_name(record: bytes) -> str | None:
    """Return the tenant's name in the record of its pause; None if a release wrote it that stored no name."""
    name = record.partition(b"\xff")[2]
    try:
        return name.decode("utf-8", "surrogatepass") or None
    except UnicodeDecodeError:
        # Somebody edited it.
        return None
