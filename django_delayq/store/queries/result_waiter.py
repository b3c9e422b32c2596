"""Result waiter: wait for the kept result of a job. Called by processes that enqueue."""

from math import ceil

from django_delayq.store.shard import Shard

#: Seconds that one call may block: the timeout of the connection is made for commands that do not block.
LONGEST = 1.0


def wait_for_result(shard: Shard, raw_id: bytes, seconds: float) -> bool:
    """Block until the job's result is there, for `LONGEST` at most. Return whether it is. One round trip.

    The result is popped from its list and pushed back in one step. It keeps its expiry, and any number of callers may
    wait for it. `shard` is one for workers: on one for producers, a call may take no longer than ENQUEUE_TIMEOUT.
    """
    key = shard.keys.results(raw_id)
    # Redis counts in milliseconds here, and 0 means forever.
    block = max(1, ceil(min(seconds, LONGEST) * 1_000)) / 1_000
    return shard.execute("BLMOVE", key, key, "LEFT", "RIGHT", str(block)) is not None
