"""Script call: one run of a script, packed and sent; its caller may do something else before it reads the reply."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from redis import exceptions as redis_errors

from django_delayq.exceptions import StoreRejected
from django_delayq.store.client.connection_cache import ConnectionCache, PendingReply
from django_delayq.store.client.resp import Part, encode_evalsha
from django_delayq.store.client.script import Script, to_store_error

T = TypeVar("T")


class ScriptCall:
    """One packed call of a script. `result()` does everything; `send()` before it saves waiting."""

    def __init__(
        self,
        script: Script,
        connection_cache: ConnectionCache,
        fixed_keys: tuple[str, ...],
        more_keys: Sequence[str],
        args: Sequence[Part],
    ) -> None:
        self.script = script
        self._connection_cache, self._keys, self._args = connection_cache, [*fixed_keys, *more_keys], args
        #: The bytes to send.
        self.packed = encode_evalsha(script.sha, fixed_keys, more_keys, args)
        self._reply: PendingReply | None = None

    def send(self) -> bool:
        """Send the call and hold its connection until `result()`; False, and not sent, if it could be the only one.

        Raises as `result()` does.
        """
        if self._connection_cache.keeps:
            self._reply = self._with_store_errors(lambda: self._connection_cache.send(self.packed))
        return self._connection_cache.keeps

    def sent_elsewhere(self, reply: PendingReply) -> None:
        """Set the reply of a call whose bytes the caller sent itself."""
        self._reply = reply

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

    def _read_result(self) -> Any:
        reply, self._reply = self._reply, None
        try:
            return (reply or self._connection_cache.send(self.packed)).read()
        except redis_errors.NoScriptError:
            keys, text = self._keys, self.script.text
            return self._connection_cache.execute("EVAL", text, len(keys), *keys, *self._args)

    def _with_store_errors(self, run: Callable[[], T]) -> T:
        try:
            return run()
        except redis_errors.RedisError as error:
            store_error = to_store_error(error, script=self.script, client=self._connection_cache.client)
            if isinstance(store_error, StoreRejected) and store_error.code == "READONLY":
                # The server's name may lead to another primary by now; open connections never will.
                self._connection_cache.disconnect_idle()
            raise store_error from error
