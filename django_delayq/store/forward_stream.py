"""Forward stream: the Redis stream through which the forwarding pool hands jobs to other systems."""

import json
from typing import Any

from django_delayq.store.shard import Shard


class ForwardStream:
    """API of one shard for the forwarding pool."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    def add(self, job: dict[str, Any]) -> None:
        """Append a job: its id as field `id`, the job as JSON in field `job`. One round trip, O(1).

        The readers of the stream trim it. Not idempotent: after a retry the job is there twice, with the same id.
        """
        text = json.dumps(job, separators=(",", ":"))
        self._shard.execute("XADD", self._shard.keys("forwarded"), "*", "id", job["id"], "job", text)
