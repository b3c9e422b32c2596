"""Process reports: what dispatchers and workers report of themselves. Called by their `ProcessReporter`."""

import json
from collections.abc import Mapping
from typing import Any

from django_delayq.metrics import Rows, encode_rows
from django_delayq.store.client.script import Script
from django_delayq.store.shard import Shard

_REPORT = Script("report")


class ProcessReports:
    """Status reports of dispatchers and workers, one shard."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    def report(self, code: bytes, kind: str, status: Mapping[str, Any], rows: Rows) -> bool:
        """Store the status of a worker or dispatcher (its kind) and add rows of its `MetricsBuffer`.

        Returns True if it should take no more jobs. Not idempotent: a repeated report counts twice. O(1), and about
        30 µs a queue and task. It is sent in one write with those of other shards, a few milliseconds later.
        """
        return self._run(code, kind, json.dumps(status, separators=(",", ":")), rows, can_wait=True)

    def deregister(self, code: bytes, rows: Rows) -> None:
        """Add the last rows and remove the process."""
        self._run(code, "", "", rows)

    def _run(self, code: bytes, kind: str, status: str, rows: Rows, *, can_wait: bool = False) -> bool:
        cells = [cell for pair in encode_rows(rows).items() for cell in pair]
        return bool(self._shard.run(_REPORT, [code, kind, status, *cells], can_wait=can_wait))
