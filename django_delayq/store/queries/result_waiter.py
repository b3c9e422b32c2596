"""Results: wait for the kept result of a job. Called by whoever enqueued it."""

from math import ceil

from redis import exceptions as redis_errors

from django_delayq.store.client.script import to_store_error
from django_delayq.store.shard import Shard

#: Seconds that one wait may block: the connection's own timeout is for commands that do not.
LONGEST = 1.0


class ResultWaiter:
    """The door of those who wait for results of one shard."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    def wait(self, raw_id: bytes, seconds: float) -> bool:
        """Block until the job's result is there, `LONGEST` at most; false where it did not come. Takes nothing.

        Its place in the list is its own place: popped and pushed in one step, it keeps its expiry, and any number may
        wait for it. One round trip.
        """
        key = self._shard.keys.results(raw_id)
        # Redis counts in milliseconds here, and 0 means for ever.
        block = max(1, ceil(min(seconds, LONGEST) * 1_000)) / 1_000
        try:
            return self._shard.client.blmove(key, key, block, "LEFT", "RIGHT") is not None
        except redis_errors.RedisError as error:
            raise to_store_error(error, client=self._shard.client) from error
