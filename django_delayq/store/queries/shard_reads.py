"""Shard reads: readings of all shards side by side, each server at the same time and all its shards in one write."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from time import time_ns
from typing import Any, TypeAlias, TypeVar

from redis import exceptions as redis_errors

from django_delayq.exceptions import StoreUnavailable
from django_delayq.store.client.at_once import at_once
from django_delayq.store.client.reading import ReadCall, Reading, packed
from django_delayq.store.nodes.errors import UNREACHABLE, NoServer, to_store_error
from django_delayq.store.nodes.node import Node
from django_delayq.store.shard import Shard

T = TypeVar("T")
#: Shard -> the calls of one step, or their replies, or why there are none.
_Calls: TypeAlias = Mapping[int, Sequence[ReadCall]]
_Replies: TypeAlias = dict[int, list[Any] | StoreUnavailable]


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingServer:
    """A server that does not answer, and the shards that it has."""

    #: Its address, for people.
    server: str
    shards: tuple[int, ...]
    error: StoreUnavailable

    def __str__(self) -> str:
        numbers = ", ".join(map(str, self.shards))
        shards = f"shard {numbers} is" if len(self.shards) == 1 else f"shards {numbers} are"
        return f"{self.server} does not answer, so {shards} missing: {self.error}"


class ShardReads:
    """Readings of the shards of one store, for one page, command or call.

    If a server does not answer, `read()` raises `StoreUnavailable`. With `partial` it leaves out the shards of that
    server, then and later, and `missing` names them; it raises if no server answers.
    """

    def __init__(self, shards: Sequence[Shard], *, partial: bool = False) -> None:
        self._shards, self._partial = shards, partial
        self._missing: dict[int, tuple[str, StoreUnavailable]] = {}
        #: Shard -> this host's time in the middle of its last round trip, and half of that one's length (µs).
        self.times_us: dict[int, tuple[int, int]] = {}

    @property
    def answering(self) -> list[int]:
        """The shards whose servers answered so far."""
        return [index for index in range(len(self._shards)) if index not in self._missing]

    @property
    def missing(self) -> list[MissingServer]:
        """The servers that did not answer."""
        by_server: dict[str, list[int]] = {}
        for index, (server, _) in sorted(self._missing.items()):
            by_server.setdefault(server, []).append(index)
        return [
            MissingServer(server=server, shards=tuple(indexes), error=self._missing[indexes[0]][1])
            for server, indexes in by_server.items()
        ]

    def read(self, make: Callable[[int], Reading[T]], shards: Iterable[int] | None = None) -> dict[int, T]:
        """Return what the readings of these shards read, or of all; by shard, in order.

        `make` returns the reading of a shard. As many round trips of time as the longest reading has steps. Each server
        has one write a step, on one connection, so that a limited pool is enough. Raises `StoreError`s.
        """
        wanted = self.answering if shards is None else [index for index in shards if index not in self._missing]
        readings = {index: make(index) for index in wanted}
        values: dict[int, T] = {}
        # The first `None` starts a reading.
        replies: dict[int, Any] = dict.fromkeys(readings)
        while replies:
            calls: dict[int, Sequence[ReadCall]] = {}
            for index, its_replies in replies.items():
                try:
                    calls[index] = readings[index].send(its_replies)
                except StopIteration as end:
                    values[index] = end.value
            replies = self._step(calls)
        if self._missing and not self.answering:
            raise next(error for _, error in self._missing.values())
        return {index: values[index] for index in wanted if index in values}

    def leave_out(self, index: int, error: StoreUnavailable) -> None:
        """Leave out the shards of the server that has this one, because a call there failed with `error`.

        Raises the error if no server is left.
        """
        server = self._label(index)
        for other in self.answering:
            if self._label(other) == server:
                self._missing[other] = server, error
        if not self.answering:
            raise error

    def _label(self, index: int) -> str:
        return self._shards[index].route.server_label

    def _step(self, calls: _Calls) -> dict[int, list[Any]]:
        """Return the replies of those shards that answer."""
        found: _Replies = {}
        by_node: dict[Node, dict[int, Sequence[ReadCall]]] = {}
        no_topology: StoreUnavailable | None = None
        for index, its_calls in calls.items():
            try:
                if no_topology is not None:
                    raise no_topology
                by_node.setdefault(self._shards[index].node, {})[index] = its_calls
            except StoreUnavailable as error:
                found[index] = error
                # Otherwise each shard would wait for the servers that know where it is.
                no_topology = None if isinstance(error.__cause__, NoServer) else error
        for part in at_once([partial(self._ask, node, its_calls) for node, its_calls in by_node.items()]):
            found |= part
        replies = {}
        for index, reply in found.items():
            if not isinstance(reply, StoreUnavailable):
                replies[index] = reply
            elif self._partial:
                self._missing[index] = self._label(index), reply
            else:
                raise reply
        return replies

    def _ask(self, node: Node, calls: _Calls) -> _Replies:
        """Return the replies of one server to the calls of its shards."""
        commands = [packed(call) for its_calls in calls.values() for call in its_calls]
        route = self._shards[next(iter(calls))].route
        if self._partial and route.topology.recovers and node.is_down:
            # A silent server would cost each page the whole time of a call.
            return self._after_failure(node, calls, NoServer("it was not reached a moment ago"))
        began_us = time_ns() // 1_000
        try:
            replies = iter(route.send(b"".join(commands)).read_all(len(commands)) if commands else ())
        except redis_errors.RedisError as error:
            node.record(reached=not isinstance(error, UNREACHABLE))
            return self._after_failure(node, calls, error)
        node.record(reached=True)
        found: _Replies = {}
        refused: dict[int, Sequence[ReadCall]] = {}
        for index, its_calls in calls.items():
            its_replies = list(islice(replies, len(its_calls)))
            if any(isinstance(reply, redis_errors.RedisError) for reply in its_replies):
                refused[index] = its_calls
            else:
                found[index] = its_replies
                self._set_time(index, began_us)
        return found | self._ask_each(refused)

    def _after_failure(self, node: Node, calls: _Calls, error: redis_errors.RedisError) -> _Replies:
        """Ask shards again that may be on another server now; without `partial` all, which waits for such a server."""
        first = self._shards[next(iter(calls))]
        store_error = to_store_error(
            error, place=lambda: node.connections.label, user=first.route.topology.connections.user
        )
        store_error.__cause__ = error
        if not isinstance(store_error, StoreUnavailable):
            raise store_error
        # With a limited pool, all connections may be in use for a moment.
        if not self._partial or isinstance(error, redis_errors.MaxConnectionsError):
            return self._ask_each(calls)
        first.route.look_again(error, node)
        elsewhere = {index: its_calls for index, its_calls in calls.items() if self._is_elsewhere(index, node)}
        return dict.fromkeys(calls, store_error) | self._ask_each(elsewhere)

    def _is_elsewhere(self, index: int, node: Node) -> bool:
        try:
            return self._shards[index].node is not node
        except StoreUnavailable:
            return False

    def _ask_each(self, calls: _Calls) -> _Replies:
        """Ask the shards of one server one after the other, until one does not answer."""
        found: _Replies = {}
        failure: StoreUnavailable | None = None
        for index, its_calls in calls.items():
            if failure is None:
                began_us = time_ns() // 1_000
                try:
                    found[index] = self._shards[index].read_all(its_calls)
                    self._set_time(index, began_us)
                    continue
                except StoreUnavailable as error:
                    failure = error
            found[index] = failure
        return found

    def _set_time(self, index: int, began_us: int) -> None:
        half_us = (time_ns() // 1_000 - began_us) // 2
        self.times_us[index] = began_us + half_us, half_us
