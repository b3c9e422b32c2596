"""Route: the way to the server of one shard. It follows the shard when another server takes it over."""

from collections.abc import Sequence
from contextlib import suppress
from time import monotonic, sleep
from typing import Any

from redis import exceptions as redis_errors

from django_delayq.store.nodes.connection_cache import ConnectionCache, PendingReply
from django_delayq.store.nodes.deadline import call_until
from django_delayq.store.nodes.errors import UNREACHABLE, was_not_run
from django_delayq.store.nodes.node import Node
from django_delayq.store.nodes.resp import encode
from django_delayq.store.routing.topology import Topology

#: Most servers that one command is sent to because the one before refused it.
_MOST_REDIRECTS = 8
#: Seconds after which a producer sends a command again that no server could run yet.
_PAUSE = 0.02
_ASKING = encode("ASKING")


class Route:
    """Sends the commands of one shard. Thread-safe.

    If a server refuses a command without running it, the route sends it to the server that has the shard now. A
    producer waits for such a server as long as its call may take.
    """

    def __init__(self, topology: Topology, slot: int, *, shard: int, for_producers: bool) -> None:
        self.topology = topology
        self._shard, self._slot = shard, slot
        #: A command may take ENQUEUE_TIMEOUT, and waits for a server as long; otherwise 5 s, without waiting.
        self.for_producers = for_producers

    @property
    def node(self) -> Node:
        """The server that has the shard, as far as this process knows. Raises the library's errors."""
        return self.topology.node(self._slot)

    def place(self) -> str:
        """Return the shard and its server, for people. Asks nobody."""
        return f"shard {self._shard} at {self.server_label}"

    @property
    def server_label(self) -> str:
        """The address of the server, for people. Asks nobody."""
        return self.topology.known_label(self._slot)

    @property
    def cache(self) -> ConnectionCache:
        """The connections to that server."""
        return self._cache_of(self.node)

    @property
    def is_down(self) -> bool:
        """Whether no server has the shard, or its server was not reached lately and does not reply yet."""
        try:
            node = self.node
        except redis_errors.RedisError:
            return True
        if node.is_down:
            # Another may have taken over.
            self.look_again(redis_errors.ConnectionError(), node)
            return True
        return False

    def send(self, packed: bytes) -> PendingReply:
        """Send a packed command to that server; `read_all()` takes its reply. Raises the library's errors."""
        return self.cache.send(packed)

    def look_again(self, error: redis_errors.RedisError, node: Node | None) -> None:
        """Look for the server that has the shard now, after an error of a node. Raises nothing."""
        with suppress(redis_errors.RedisError):
            self.topology.follow(error, self._slot, node)

    def read(self, command: bytes, reply: PendingReply | None = None) -> Any:
        """Do what `read_all()` does for one command. Each enqueue is one: this takes 3 µs less."""
        node, began = None, monotonic()
        try:
            node = self.topology.node(self._slot)
            cache = node.producers if self.for_producers else node.workers
            return (reply or cache.send(command)).read()
        except redis_errors.RedisError as error:
            until = began + self.topology.producer_timeout if self.for_producers else 0.0
            with call_until(until):
                return self._send_again([command], 0, error, node, until)[0]

    def read_all(self, commands: Sequence[bytes], reply: PendingReply | None = None, *, may_fail: int = 0) -> list[Any]:
        """Send packed commands in one round trip, unless `reply` is theirs, and return their replies.

        If the server changes in the middle, all of them run again: more than one must be safe to repeat. Raises the
        library's errors; an error reply of the last `may_fail` commands is returned as an exception.
        """
        until = monotonic() + self.topology.producer_timeout if self.for_producers else 0.0
        node = None
        try:
            node = self.node
            reply = reply or self._cache_of(node).send(b"".join(commands))
            return _checked(reply.read_all(len(commands)), may_fail)
        except redis_errors.RedisError as error:
            with call_until(until):
                return self._send_again(commands, may_fail, error, node, until)

    def read_shared(self, command: bytes) -> Any:
        """Send a packed command together with those of other shards, a few milliseconds from now; return its reply.

        Raises the library's errors.
        """
        node = None
        try:
            node = self.node
            return _checked([node.shared_writes.run(command)], 0)[0]
        except redis_errors.RedisError as error:
            return self._send_again([command], 0, error, node, 0.0)[0]

    def _send_again(
        self,
        commands: Sequence[bytes],
        may_fail: int,
        error: redis_errors.RedisError,
        node: Node | None,
        until: float,
    ) -> list[Any]:
        """Send commands that failed on a node until a server runs them or refuses them for good."""
        redirects = 0
        try:
            while True:
                redirect = self.topology.follow(error, self._slot, node)
                # In a row: a slot that is moving may send each try to another server for as long as the move takes.
                redirects = redirects + 1 if redirect else 0
                if node is not None and isinstance(error, UNREACHABLE):
                    node.record(reached=False)
                if redirects > _MOST_REDIRECTS or redirect is None and not self._wait(error, until):
                    raise error
                try:
                    node = redirect.node if redirect else self.node
                    asking = redirect is not None and redirect.asking
                    found = _checked(self._send_to(node, commands, asking=asking), may_fail)
                except redis_errors.RedisError as again:
                    error = again
                else:
                    node.record(reached=True)
                    return found
        finally:
            # This frame is in the traceback of the error. A circle would keep the variables of all callers in memory.
            del error

    def _send_to(self, node: Node, commands: Sequence[bytes], *, asking: bool) -> list[Any]:
        """Send commands to a node and return their replies; `asking`: the slot is about to move there."""
        cache = self._cache_of(node)
        if not asking:
            return cache.send(b"".join(commands)).read_all(len(commands))
        pairs = [each for command in commands for each in (_ASKING, command)]
        return cache.send(b"".join(pairs)).read_all(len(pairs))[1::2]

    def _wait(self, error: redis_errors.RedisError, until: float) -> bool:
        """Wait a moment for a server that can run the command; returns False if this call does not wait for one."""
        waits = self.topology.recovers and was_not_run(error) and monotonic() + _PAUSE < until
        if waits:
            sleep(_PAUSE)
        return waits

    def _cache_of(self, node: Node) -> ConnectionCache:
        return node.producers if self.for_producers else node.workers


def _checked(replies: list[Any], may_fail: int) -> list[Any]:
    """Return replies. Raises the first error reply, except among the last `may_fail`."""
    errors = [each for each in replies[: len(replies) - may_fail] if isinstance(each, redis_errors.RedisError)]
    if not errors:
        return replies
    try:
        raise errors[0]
    finally:
        # As in `_send_again()`.
        del errors, replies
