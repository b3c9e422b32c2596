"""Stream: jobs handed on to whoever reads a Redis stream. Called by the forwarding pool."""

import json
from typing import Any

from django_delayq.store.client.script import with_store_errors
from django_delayq.store.shard import Shard


class ForwardStream:
    """The forwarder's door of one shard."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    def add(self, job: dict[str, Any]) -> None:
        """Append a job to `forwarded`: its id as field `id`, all of it as JSON in `job`. One round trip, O(1).

        Readers trim the stream. Not safe to repeat: a job may be there twice, under one id.
        """
        client, key = self._shard.client, self._shard.keys("forwarded")
        text = json.dumps(job, separators=(",", ":"))
        with_store_errors(lambda: client.execute_command("XADD", key, "*", "id", job["id"], "job", text), client)
