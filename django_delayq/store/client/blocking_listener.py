"""Waker: one blocked connection that hears bells or the alarm; its owner waits on the socket with a timer of its own.

A Redis block timeout is no timer: an idle server answered 24 to 94 ms late (measured at `hz 10`), a wait on the
client's side 0.1 to 0.6 ms. So BLPOP only listens, and select() decides when to get up.
"""

import os
import weakref
from collections.abc import Sequence
from typing import Any

from redis import exceptions as redis_errors

from django_delayq.store.client.connection import COMMAND_TIMEOUT, Connections
from django_delayq.store.client.connection_cache import PendingReply
from django_delayq.store.client.resp import encode
from django_delayq.store.client.script import to_store_error
from django_delayq.store.client.script_call import ScriptCall

#: Seconds a BLPOP stays outstanding where nobody says how long; silence beyond COMMAND_TIMEOUT more means a dead
#: connection.
BLOCK = 10
_wakers: "weakref.WeakSet[BlockingListener]" = weakref.WeakSet()


class BlockingListener:
    """Hear one shard's bells."""

    def __init__(self, connections: Connections, client: Any) -> None:
        self._connections = connections
        self._client = client
        self._connection: Any = None
        #: A BLPOP is outstanding.
        self.listening = False
        self._give_up_at = 0.0
        #: Number of replies on their way that no caller waits for.
        self._untold = 0
        _wakers.add(self)

    def listen(self, keys: Sequence[str], *, now: float, block: float = BLOCK) -> None:
        """Have a BLPOP outstanding; one for other keys goes on until it is answered. `now` is monotonic time.

        It ends after `block` seconds without a bell. Raises `StoreUnavailable` and its kin; the next call connects
        anew.
        """
        if self.listening:
            if now > self._give_up_at:
                self.close()
                raise to_store_error(redis_errors.TimeoutError("no answer to a blocking pop"))
            return
        try:
            if self._connection is None:
                self._connection = self._connections.blocked()
                self._connection.connect()
            while self._untold:
                # Else it would be taken for the bell.
                self._connection.read_response()
                self._untold -= 1
            self._connection.send_packed_command([encode("BLPOP", *keys, f"{block:.3f}")])
        except (redis_errors.RedisError, OSError) as error:
            self.close()
            raise to_store_error(error, client=self._client) from error
        self.listening, self._give_up_at = True, now + block + COMMAND_TIMEOUT

    def send_behind(self, call: ScriptCall) -> None:
        """Send a script call that Redis runs when the blocking pop ends; its reply follows the reply of the pop."""
        self._send(call.packed)
        call.sent(PendingReply(self, self._connection))

    def tell(self, packed: bytes) -> None:
        """Send a command without waiting for its reply. No pop may be outstanding."""
        self._send(packed)
        self._untold += 1

    def put_back(self, connection: Any) -> None:
        """Do nothing, for `Question`: the connection stays this waker's."""

    def fileno(self) -> int:
        """Return the socket to wait on, or -1 while nothing is outstanding."""
        if not self.listening:
            return -1
        return int(self._connection._sock.fileno())

    def take(self) -> str | None:
        """Read the answer on a readable socket: the key that rang, or None for a pop that ended empty."""
        try:
            answer = self._connection.read_response()
        except (redis_errors.RedisError, OSError) as error:
            self.close()
            raise to_store_error(error, client=self._client) from error
        self.listening = False
        return answer[0].decode() if answer else None

    def close(self) -> None:
        """Drop the connection; a bell on its way in is lost, which costs one sweep."""
        connection, self._connection, self.listening, self._untold = self._connection, None, False, 0
        if connection is not None:
            connection.disconnect()

    def _send(self, packed: bytes) -> None:
        try:
            if self._connection is None or self._connection._sock is None:
                raise redis_errors.ConnectionError("the connection was closed")
            # The library's way to it takes 20 µs more, right where a job waits to begin.
            self._connection._sock.sendall(packed)
        except (redis_errors.RedisError, OSError) as error:
            self.close()
            raise to_store_error(error, client=self._client) from error


def _after_fork() -> None:
    """Close the parent's connections: an open copy would keep the parent's pop alive after the parent was killed."""
    for waker in list(_wakers):
        waker.close()


os.register_at_fork(after_in_child=_after_fork)
