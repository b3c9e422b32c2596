"""Shared writes: commands that threads send to one server at the same moment go out in one write.

Each shard of an idle process sends a command now and then. All shards of a server do so at the same ticks, and one
write for all of them costs the server and the process little more than one for one.
"""

import threading
from time import sleep
from typing import Any

from redis import exceptions as redis_errors

from django_delayq.store.nodes.connection_cache import ConnectionCache

#: Seconds for which the first thread waits for the others.
_WAIT = 0.01


class _Batch:
    """The commands of one write, and then their replies or the error."""

    def __init__(self) -> None:
        self.commands: list[bytes] = []
        self.replies: list[Any] = []
        self.error: redis_errors.RedisError | None = None
        self.ended = threading.Event()


class SharedWrites:
    """The shared writes to one server. Thread-safe."""

    def __init__(self, cache: ConnectionCache) -> None:
        self._cache = cache
        self._lock = threading.Lock()
        self._open: _Batch | None = None

    def run(self, packed: bytes) -> Any:
        """Run a packed command some milliseconds from now. Return its reply, an error reply as an exception.

        Raises the library's other errors.
        """
        with self._lock:
            batch, is_first = self._open, self._open is None
            if batch is None:
                batch = self._open = _Batch()
            number = len(batch.commands)
            batch.commands.append(packed)
        if is_first:
            self._send(batch)
        else:
            batch.ended.wait()
        if batch.error is not None:
            # A new exception: several threads raise it.
            raise type(batch.error)(*batch.error.args) from batch.error
        return batch.replies[number]

    def _send(self, batch: _Batch) -> None:
        batch.error = redis_errors.ConnectionError("the thread that sent the command was interrupted")
        try:
            sleep(_WAIT)
            with self._lock:
                self._open = None
            batch.replies = self._cache.send(b"".join(batch.commands)).read_all(len(batch.commands))
            batch.error = None
        except redis_errors.RedisError as error:
            batch.error = error
        finally:
            with self._lock:
                if self._open is batch:
                    self._open = None
            batch.ended.set()
