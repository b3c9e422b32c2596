"""Waker: one blocked connection that hears bells or the alarm; its owner waits on the socket with a timer of its own.

A Redis block timeout is no timer: an idle server answered 24 to 94 ms late (measured at `hz 10`), a wait on the
client's side 0.1 to 0.6 ms. So BLPOP only listens, and select() decides when to get up.

What is to be asked at the bell is sent right behind the BLPOP: Redis keeps it unread while the pop blocks, and carries
it out the moment the bell rings, before it answers either. A worker so has its claims with the bell, a round trip and a
wake-up earlier than one that asks when it has heard it.
"""

from collections.abc import Callable, Sequence
from typing import Any

from redis import exceptions as redis_errors

from django_delayq.store.call import Call
from django_delayq.store.connection import COMMAND_TIMEOUT, Connections
from django_delayq.store.line import Question
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
        self._behind: Call | None = None
        self._give_up_at = 0.0

    def listen(
        self, keys: Sequence[str], *, now: float, block: float = BLOCK, behind: Callable[[], Call] | None = None
    ) -> None:
        """Have a BLPOP outstanding; one for other keys goes on until it is answered. `now` is monotonic time.

        `behind` is asked, where a pop is sent, for the call to be carried out when it ends, after a bell or after
        `block` seconds without one; `take()` leaves its answer to be read.
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
            self._behind = behind() if behind else None
            call = self._behind.packed if self._behind else b""
            self._connection.send_packed_command([command("BLPOP", *keys, str(block)) + call])
        except (redis_errors.RedisError, OSError) as error:
            self.close()
            raise translated(error, client=self._client) from error
        self.listening, self._give_up_at = True, now + block + COMMAND_TIMEOUT

    def fileno(self) -> int:
        """Return the socket to wait on, or -1 while nothing is outstanding."""
        if not self.listening:
            return -1
        return int(self._connection._sock.fileno())

    def take(self) -> str | None:
        """Read the answer on a readable socket: the key that rang, or None for a pop that ended empty.

        Whoever had a call sent behind the pop has to read its answer before listening again.
        """
        try:
            answer = self._connection.read_response()
        except (redis_errors.RedisError, OSError) as error:
            self.close()
            raise translated(error, client=self._client) from error
        self.listening = False
        if self._behind:
            self._behind.sent(Question(self, self._connection))
        return answer[0].decode() if answer else None

    def ring(self, key: str) -> None:
        """Ring a bell again that was heard but cannot be answered."""
        try:
            self._client.rpush(key, 1)
            self._client.ltrim(key, 0, 0)
        except redis_errors.RedisError as error:
            raise translated(error, client=self._client) from error

    def put_back(self, connection: Any) -> None:
        """Do nothing, for `Question`: the connection stays ours."""

    def close(self) -> None:
        """Drop the connection; a bell on its way in is lost, which costs one sweep."""
        connection, self._connection, self.listening = self._connection, None, False
        if connection is not None:
            connection.disconnect()
