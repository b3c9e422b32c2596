"""Worker notification: makes one worker send a heartbeat at once, for example if one of its jobs must stop."""

from collections.abc import Callable
from time import monotonic

from django_delayq.store.shard import Shard

#: Seconds for which the pop stays outstanding: an idle worker sends one a minute.
_BLOCK = 60.0


class WorkerNotification:
    """Wakes one worker alone, also while all of its slots are busy. Not thread-safe.

    It has a connection of its own: the pop for jobs is outstanding only while a slot is free.
    """

    def __init__(self, shard: Shard, worker_id: Callable[[], bytes]) -> None:
        """`worker_id` returns the worker's id, which changes after a stale exchange."""
        self._shard = shard
        self._worker_id = worker_id
        self._listener = shard.blocking_listener()

    def listen(self) -> int:
        """Listen unless a pop is outstanding; return the socket to wait on. Raises `StoreError`."""
        key = self._shard.keys.notify_worker(self._worker_id())
        # Another command than that of the pop for jobs: CLIENT LIST shows which of them a connection waits for.
        self._listener.listen([key], now=monotonic(), block=_BLOCK, command="BRPOP")
        return self._listener.fileno()

    def arrived(self) -> bool:
        """Read the reply of the pop; return whether a notification came. Raises `StoreError`."""
        return self._listener.read_notification() is not None

    def close(self) -> None:
        """Close the connection."""
        self._listener.close()
