"""Blocking listener: one connection with an outstanding BLPOP for notifications; its owner waits on the socket.

A Redis block timeout is no timer: an idle server replied 24 to 94 ms late (measured at `hz 10`), a wait on the client's
side 0.1 to 0.6 ms. So BLPOP only listens, and the owner's select() ends at the right time.
"""

import os
import weakref
from collections.abc import Sequence
from typing import Any

from redis import exceptions as redis_errors

from django_delayq.store.client.script_call import ScriptCall
from django_delayq.store.nodes.connection_cache import PendingReply
from django_delayq.store.nodes.connections import COMMAND_TIMEOUT
from django_delayq.store.nodes.errors import NoServer, to_store_error
from django_delayq.store.nodes.node import Node
from django_delayq.store.nodes.resp import encode
from django_delayq.store.routing.route import Route

#: Default of the seconds for which a BLPOP stays outstanding. If its reply is COMMAND_TIMEOUT late, the connection is
#: dead.
BLOCK = 10
_listeners: "weakref.WeakSet[BlockingListener]" = weakref.WeakSet()


class BlockingListener:
    """Listen for the notifications of one shard. Not thread-safe; closed after a fork."""

    def __init__(self, route: Route) -> None:
        self._route = route
        #: The server that the connection leads to.
        self._node: Node | None = None
        self._connection: Any = None
        #: A BLPOP is outstanding.
        self.listening = False
        self._overdue_at = 0.0
        #: Number of outstanding replies that no caller waits for.
        self._unread_replies = 0
        _listeners.add(self)

    def listen(
        self,
        keys: Sequence[str],
        *,
        now: float,
        block: float = BLOCK,
        command: str = "BLPOP",
        behind: ScriptCall | None = None,
    ) -> None:
        """Send a BLPOP unless one is outstanding, even for other keys. `now` is monotonic time.

        It ends after `block` seconds without a notification. `command` may be BRPOP, which does the same to a list of
        one element. Redis runs the call `behind` it when it ends; the reply of the call follows that of the pop. Raises
        `StoreError`s; the next call connects again.
        """
        try:
            node = self._route.node
            if self.listening:
                if now > self._overdue_at:
                    raise redis_errors.TimeoutError("no answer to a blocking pop")
                if node is not self._node:
                    # A server that was cut off does not end the pop itself.
                    raise NoServer(f"the shard has moved from {self._node} to {node}")
                if behind is not None:
                    self._send(behind.packed)
                    behind.sent_elsewhere(PendingReply(self._connection))
                return
            if self._connection is None or node is not self._node:
                self.close()
                self._node, self._connection = node, node.connections.blocked()
                self._connection.connect()
            while self._unread_replies:
                # Otherwise such a reply would be taken for a notification.
                self._connection.read_response()
                self._unread_replies -= 1
            packed = encode(command, *keys, f"{block:.3f}")
            self._connection.send_packed_command([packed + behind.packed if behind else packed])
        except (redis_errors.RedisError, OSError) as error:
            raise self._failed(error) from error
        self.listening, self._overdue_at = True, now + block + COMMAND_TIMEOUT
        if behind is not None:
            behind.sent_elsewhere(PendingReply(self._connection))

    def send_without_reply(self, packed: bytes) -> None:
        """Send a command and leave its reply to the next `listen()`. No pop may be outstanding."""
        self._send(packed)
        self._unread_replies += 1

    def fileno(self) -> int:
        """Return the socket to wait on, or -1 if nothing is outstanding."""
        if not self.listening:
            return -1
        return int(self._connection._sock.fileno())

    def read_notification(self) -> str | None:
        """Read the reply on a readable socket: the key that was notified, or None if the pop timed out.

        Raises `StoreError`s.
        """
        try:
            reply = self._connection.read_response()
        except (redis_errors.RedisError, OSError) as error:
            raise self._failed(error) from error
        self.listening = False
        return reply[0].decode() if reply else None

    def close(self) -> None:
        """Close the connection. A notification that arrives meanwhile is lost, which costs at most one sweep."""
        connection, self._connection, self.listening, self._unread_replies = self._connection, None, False, 0
        if connection is not None:
            connection.disconnect()

    def _failed(self, error: redis_errors.RedisError | OSError) -> Exception:
        """Close the connection and look for the server that has the shard now. Return the error to raise."""
        self.close()
        if isinstance(error, redis_errors.RedisError):
            self._route.look_again(error, self._node)
        return to_store_error(error, place=self._route.place, user=self._route.topology.connections.user)

    def _send(self, packed: bytes) -> None:
        try:
            if self._connection is None or self._connection._sock is None:
                raise redis_errors.ConnectionError("the connection was closed")
            # The library's way to the socket takes 20 µs more, at the moment when a job waits to begin.
            self._connection._sock.sendall(packed)
        except (redis_errors.RedisError, OSError) as error:
            raise self._failed(error) from error


def _after_fork() -> None:
    """Close the parent's connections: an open copy would keep the parent's pop alive after the parent was killed."""
    for listener in list(_listeners):
        listener.close()


os.register_at_fork(after_in_child=_after_fork)
