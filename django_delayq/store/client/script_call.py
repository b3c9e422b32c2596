"""Script call: one run of a script, packed and sent; its caller may do something else before it reads the reply."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from redis import exceptions as redis_errors

from django_delayq.exceptions import NotReplicated
from django_delayq.store.client.replication import Replication
from django_delayq.store.client.script import Script
from django_delayq.store.nodes.connection_cache import PendingReply
from django_delayq.store.nodes.errors import to_store_error, was_not_run
from django_delayq.store.nodes.resp import Part, encode, encode_evalsha
from django_delayq.store.routing.route import Route

T = TypeVar("T")


class ScriptCall:
    """One packed call of a script. `result()` does everything; `send()` before it saves waiting."""

    def __init__(
        self,
        script: Script,
        route: Route,
        fixed_keys: tuple[str, ...],
        more_keys: Sequence[str],
        args: Sequence[Part],
        *,
        replication: Replication | None = None,
    ) -> None:
        """`replication` is what the call waits for."""
        self.script = script
        self._route, self._keys, self._args = route, [*fixed_keys, *more_keys], args
        self._replication = replication
        #: The bytes to send.
        self.packed = encode_evalsha(script.sha, fixed_keys, more_keys, args)
        self._reply: PendingReply | None = None

    def send(self) -> bool:
        """Send the call and hold its connection until `result()`; False, and not sent, if it could be the only one.

        Raises as `result()` does.
        """
        return self._with_store_errors(self._send)

    def sent_elsewhere(self, reply: PendingReply) -> None:
        """Set the reply of a call whose bytes the caller sent itself."""
        self._reply = reply

    def result_with_others(self) -> Any:
        """Return what `result()` does, a few milliseconds later: calls of other shards go out in the same write."""
        return self._with_store_errors(self._read_shared_result)

    def result(self) -> Any:
        """Return the script's reply, in one round trip (two if the server does not know the script).

        Raises `StoreError`s and `JobRefused`. After a connection error the script may have run: every script that
        changes anything says in its header whether it is safe to repeat.
        """
        return self._with_store_errors(self._read_result)

    def abandon(self) -> None:
        """Drop the reply, if the call was sent. `result()` after this sends the call again."""
        reply, self._reply = self._reply, None
        if reply is not None:
            reply.abandon()

    def _send(self) -> bool:
        try:
            if not self._route.cache.keeps:
                return False
            self._reply = self._route.send(b"".join(self._commands(self.packed)))
        except redis_errors.RedisError as error:
            if not (self._route.topology.recovers and was_not_run(error)):
                raise
            # `result()` looks for another server.
        return self._reply is not None

    def _read_result(self) -> Any:
        reply, self._reply = self._reply, None
        try:
            return self._read(self.packed, reply)
        except redis_errors.NoScriptError:
            keys, text = self._keys, self.script.text
            return self._read(encode("EVAL", text, len(keys), *keys, *self._args))

    def _read_shared_result(self) -> Any:
        try:
            return self._route.read_shared(self.packed)
        except redis_errors.NoScriptError:
            return self._read_result()

    def _commands(self, packed: bytes) -> list[bytes]:
        return [packed, *self._replication.commands] if self._replication else [packed]

    def _read(self, packed: bytes, reply: PendingReply | None = None) -> Any:
        if self._replication is None:
            return self._route.read(packed, reply)
        commands = self._commands(packed)
        replies = self._route.read_all(commands, reply, may_fail=len(commands) - 1)
        try:
            self._replication.check(replies[1:], user=self._route.topology.connections.user)
        except NotReplicated:
            # The replicas may follow another primary by now, and this one does not know it yet.
            self._route.look_again(redis_errors.ConnectionError(), None)
            raise
        return replies[0]

    def _with_store_errors(self, run: Callable[[], T]) -> T:
        # Not `with_store_errors()`: this is each enqueue's way.
        try:
            return run()
        except redis_errors.RedisError as error:
            route = self._route
            user, source_line = route.topology.connections.user, self.script.source_line
            raise to_store_error(error, place=route.place, user=user, source_line=source_line) from error
