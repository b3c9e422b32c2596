"""Tenant list: what `delayq_stats --tenants` prints of the tenants of a queue."""

from collections.abc import Iterator, Sequence
from heapq import nlargest
from typing import Any

from django_delayq.control.queues import Queue
from django_delayq.control.tenants import iter_tenants
from django_delayq.display.text import printable
from django_delayq.management.operating import to_seconds
from django_delayq.store.queries.shard_reads import ShardReads


def read_tenants(queue: Queue, *, most: int, reads: ShardReads) -> tuple[list[dict[str, Any]], int]:
    """Return up to `most` tenants (0: all), those with the most waiting jobs first, and how many there are."""
    found = list(iter_tenants(queue.name, queue.backend, reads=reads))
    first = nlargest(most or len(found), found, key=lambda item: item[1]["waiting"])
    rows = [
        {**counts, "tenant": tenant.name, "oldest": counts["oldest"] and counts["oldest"].isoformat()}
        for tenant, counts in first
    ]
    return rows, len(found)


def tenant_lines(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield a line for each tenant."""
    for row in rows:
        since = f"  next one due since {to_seconds(row['oldest'])}" if row["oldest"] else ""
        paused = "  paused" if row["paused"] else ""
        yield printable(f"{row['waiting']:>10,}  {row['tenant']}{since}{paused}")
