"""Tenants: how many jobs of each tenant wait in a queue, which, and who paused it. Reads only."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django_delayq.job.body.codec import try_decode
from django_delayq.job.job import due_of_rank
from django_delayq.store.client.reading import Reading
from django_delayq.store.client.script import Script
from django_delayq.store.digests import queue_hash, tenant_digest
from django_delayq.store.nodes.resp import encode
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
        return self._shard.read(self.read_tenant(queue, tenant_digest(tenant)))

    def read_tenant(self, queue: str, digest: bytes) -> Reading[TenantState]:
        """Return the reading of one tenant."""
        [found] = yield from self.find_tenants(queue, only=digest)
        return found

    def read_batch(self, queue: str, after: bytes) -> Reading[tuple[list[TenantState], bytes | None]]:
        """Return the reading of up to a hundred tenants with waiting jobs, and of where the next batch begins.

        In no useful order; it begins after b"", and None is the end.
        """
        found = yield from self.find_tenants(queue, after=after)
        return found, found[-1].digest if len(found) == _TENANTS else None

    def read_tenants(
        self, queue: str, *, most: int, most_scans: int | None
    ) -> Reading[tuple[list[TenantState], list[TenantState], bool]]:
        """Return the reading of tenants with waiting jobs, of paused ones, and of whether these are all.

        Up to `most` tenants, a step for each hundred; paused ones of so many scans, a step each, none for None.
        """
        found: list[TenantState] = []
        paused: list[TenantState] = []
        after: bytes | None = b""
        # One more shows whether there are more.
        while after is not None and len(found) <= most:
            batch, after = yield from self.read_batch(queue, after)
            found += batch
        cursor: bytes | None = None if most_scans is None else b"0"
        for _ in range(most_scans or 0):
            if cursor is not None:
                cursor, states = yield from self._scan(queue, cursor)
                paused += states
        return found[:most], paused, after is None and len(found) <= most and cursor is None

    def find_tenants(self, queue: str, *, after: bytes = b"", only: bytes = b"") -> Reading[list[TenantState]]:
        """Return the reading of up to a hundred tenants in the order of their digests, or of the only one."""
        [reply] = yield [self._shard.call(_FIND_TENANTS, [_TENANTS, after, only], queue=queue)]
        rows = [reply[at : at + _PARTS] for at in range(0, len(reply), _PARTS)]
        # The script leaves out long bodies.
        cut = [row[-2] for row in rows if row[-1] is None and row[-2]]
        bodies = (yield [encode("HGET", self._shard.keys("jobs"), raw_id) for raw_id in cut]) if cut else []
        by_id = dict(zip(cut, bodies, strict=True))
        return [self._state(*(*row[:-1], row[-1] or by_id.get(row[-2]))) for row in rows]

    def read_paused(self, queue: str) -> Reading[list[TenantState]]:
        """Return the reading of the paused tenants, also those without jobs, whose waiting jobs are not counted.

        One may come twice. Each step scans a thousand of the shard's records of tenants. There is one for each tenant
        that is served, and each of its priorities.
        """
        found: list[TenantState] = []
        cursor: bytes | None = b"0"
        while cursor is not None:
            cursor, states = yield from self._scan(queue, cursor)
            found += states
        return found

    def _scan(self, queue: str, cursor: bytes) -> Reading[tuple[bytes | None, list[TenantState]]]:
        """Return the reading of the next cursor, None at the end, and of paused tenants."""
        prefix = queue_hash(queue)
        pattern = b"".join(b"\\" + bytes((byte,)) for byte in prefix) + b"?" * 8
        command = encode("HSCAN", self._shard.keys("tenants"), cursor, "MATCH", pattern, "COUNT", _SCANNED)
        [[cursor, found]] = yield [command]
        return None if cursor == b"0" else cursor, [
            TenantState(digest=field[len(prefix) :], name=_paused_name(record), paused=_pause(record))
            for field, record in zip(found[::2], found[1::2], strict=True)
        ]

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
