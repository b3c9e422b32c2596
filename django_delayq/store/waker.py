"""Waker: one blocked connection that hears bells or the alarm; its owner waits on the socket with a timer of its own.

A Redis block timeout is no timer: an idle server answered 24 to 94 ms late (measured at `hz 10`), a wait on the
client's side 0.1 to 0.6 ms. So BLPOP only listens, and select() decides when to get up.
"""

from collections.abc import Sequence
from typing import Any

from redis import exceptions as redis_errors

from django_delayq.store.connection import COMMAND_TIMEOUT, Connections
from django_delayq.store.scripts import translated
from django_delayq.store.wire import command

#: Seconds a BLPOP stays outstanding before it is sent anew; silence beyond COMMAND_TIMEOUT more means a dead
#: connection.
BLOCK = 10


class Waker:
    """Hear one shard's bells."""

    def __init__(self, connections: Connections, client: Any) -> None:
        self._connections = connections
        self._client = client
        self._connection: Any = None
        #: A BLPOP is outstanding.
        self.listening = False
        self._give_up_at = 0.0

    def listen(self, keys: Sequence[str], *, now: float) -> None:
        """Have a BLPOP outstanding; one for other keys goes on until it is answered. `now` is monotonic time.

        Raises `StoreUnavailable` and its kin; the next call connects anew.
        """
        if self.listening:
            if now > self._give_up_at:
                self.close()
                raise translated(redis_errors.TimeoutError("no answer to a blocking pop"))
            return
        try:
            if self._connection is None:
                self._connection = self._connections.blocked()
                self._connection.connect()
            self._connection.send_packed_command([command("BLPOP", *keys, str(BLOCK))])
        except (redis_errors.RedisError, OSError) as error:
            self.close()
            raise translated(error, client=self._client) from error
        self.listening, self._give_up_at = True, now + BLOCK + COMMAND_TIMEOUT

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
            raise translated(error, client=self._client) from error
        self.listening = False
        return answer[0].decode() if answer else None

    def close(self) -> None:
        """Drop the connection; a bell on its way in is lost, which costs one sweep."""
        connection, self._connection, self.listening = self._connection, None, False
        if connection is not None:
            connection.disconnect()
