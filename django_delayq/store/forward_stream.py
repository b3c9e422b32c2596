"""Forward stream: the Redis stream through which the forwarding pool hands jobs to other systems."""

import json
from typing import Any

from django_delayq.store.shard import Shard


def append(shard: Shard, job: dict[str, Any]) -> None:
    """Append a job: its id as field `id`, the job as JSON in field `job`. One round trip, O(1).

    The readers of the stream trim it. Not idempotent: after a retry the job is there twice, with the same id.
    """
    text = json.dumps(job, separators=(",", ":"))
    shard.execute("XADD", shard.keys("forwarded"), "*", "id", job["id"], "job", text)
