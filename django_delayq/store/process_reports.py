"""Process reports: what dispatchers and workers report of themselves. Called by their `ProcessReporter`."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from django_delayq._version import __version__
from django_delayq.job.ending import EndingRow
from django_delayq.job.security.endings_record import pack_endings
from django_delayq.metrics import Rows, encode_rows
from django_delayq.store.client.script import Script
from django_delayq.store.nodes.resp import Part
from django_delayq.store.shard import Shard

_REPORT = Script("report")
#: Bytes that the endings of all shards may take, for each ending of FINISHED_KEPT; beside one chunk a shard.
_BYTES = 200


class ProcessReports:
    """Status reports of dispatchers and workers, one shard."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    def report(
        self, code: bytes, kind: str, status: Mapping[str, Any], rows: Rows, endings: Sequence[EndingRow] = ()
    ) -> bool:
        """Store the status of a worker or dispatcher (its kind), and add rows of its `MetricsBuffer` and endings.

        Returns True if it should take no more jobs. Not idempotent: a repeated report counts twice. O(1), and about
        30 µs a queue and task. It is sent in one write with those of other shards, a few milliseconds later.
        """
        text = json.dumps(status, separators=(",", ":"))
        return self._run(code, kind, text, rows, endings, name=status.get("name", ""), can_wait=True)

    def deregister(self, code: bytes, rows: Rows, endings: Sequence[EndingRow] = (), *, name: str = "") -> None:
        """Add the last rows and endings, and remove the process, which has this name."""
        self._run(code, "", "", rows, endings, name=name)

    def _run(
        self,
        code: bytes,
        kind: str,
        status: str,
        rows: Rows,
        endings: Sequence[EndingRow],
        *,
        name: str,
        can_wait: bool = False,
    ) -> bool:
        cells = [cell for pair in encode_rows(rows).items() for cell in pair]
        # The shards share the jobs about equally.
        most = -(-self._shard.config.worker.finished_kept // self._shard.layout.served)
        cipher, most_bytes = self._shard.cipher, most * _BYTES
        chunk, number = pack_endings(endings, code=code, name=name, cipher=cipher, most_bytes=most_bytes)
        release = (self._shard.config.worker.release or __version__) if status else ""
        args: list[Part] = [code, kind, status, release, chunk, number, most, most_bytes, *cells]
        return bool(self._shard.run(_REPORT, args, can_wait=can_wait))
