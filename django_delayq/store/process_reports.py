"""Reports: what a dispatcher or worker tells of itself. Called by their presence."""

import json
from collections.abc import Mapping
from typing import Any

from django_delayq.metrics import MINUTES, WIDTH
from django_delayq.store.client.script import Script
from django_delayq.store.shard import Shard

_REPORT = Script("report")


class ProcessReports:
    """The telling door of one shard."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    def report(self, code: bytes, kind: str, said: Mapping[str, Any], rows: Mapping[bytes, bytes]) -> bool:
        """Say what a worker or dispatcher (its kind) does, and hand in scope -> row of its tally.

        True: it was asked to take no more jobs. Not safe to repeat: where an answer got lost, the rows were counted.
        O(1), and about 20 µs a scope.
        """
        cells = [cell for pair in rows.items() for cell in pair]
        text = json.dumps(said, separators=(",", ":"))
        return bool(self._shard.run(_REPORT, [code, kind, text, WIDTH, MINUTES, *cells]))

    def deregister(self, code: bytes, rows: Mapping[bytes, bytes]) -> None:
        """Hand the last rows in and be forgotten."""
        cells = [cell for pair in rows.items() for cell in pair]
        self._shard.run(_REPORT, [code, "", "", WIDTH, MINUTES, *cells])
