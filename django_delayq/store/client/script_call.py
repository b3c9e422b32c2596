"""Call: one run of a script: packed, sent, answered. Between these steps its caller may do something else."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from redis import exceptions as redis_errors

from django_delayq.exceptions import StoreRejected
from django_delayq.store.client.connection_cache import ConnectionCache, PendingReply
from django_delayq.store.client.resp import Part, encode_evalsha
from django_delayq.store.client.script import Script, to_store_error

T = TypeVar("T")


class ScriptCall:
    """One call of a script, packed; `answer()` is all it takes, `send()` lets its caller do something meanwhile."""

    def __init__(
        self,
        script: Script,
        line: ConnectionCache,
        fixed_keys: tuple[str, ...],
        more_keys: Sequence[str],
        args: Sequence[Part],
    ) -> None:
        self.script = script
        self._line, self._keys, self._args = line, [*fixed_keys, *more_keys], args
        #: As it goes over the wire.
        self.packed = encode_evalsha(script.sha, fixed_keys, more_keys, args)
        self._question: PendingReply | None = None

    def send(self) -> bool:
        """Send it, where a connection may be held until `answer()`; false where it could be the only one.

        Raises as `answer()` does.
        """
        if self._line.keeps:
            self._question = self._told(lambda: self._line.send(self.packed))
        return self._line.keeps

    def sent(self, question: PendingReply) -> None:
        """Note that it was sent elsewhere: `answer()` reads it there."""
        self._question = question

    def answer(self) -> Any:
        """Return what the script returned, in one round trip (two after a script flush).

        Raises `StoreError`s only, and `KeyHeld`. Connection errors may leave the step done: steps are repeatable.
        """
        return self._told(self._answered)

    def give_up(self) -> None:
        """Leave it unanswered, sent or not; whoever asks for its answer all the same sends it again."""
        question, self._question = self._question, None
        if question is not None:
            question.give_up()

    def _answered(self) -> Any:
        question, self._question = self._question, None
        try:
            return (question or self._line.send(self.packed)).answer()
        except redis_errors.NoScriptError:
            return self._line.ask("EVAL", self.script.text, len(self._keys), *self._keys, *self._args)

    def _told(self, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except redis_errors.RedisError as error:
            told = to_store_error(error, script=self.script, client=self._line.client)
            if isinstance(told, StoreRejected) and told.code == "READONLY":
                # Its name may lead to another primary by now; the open connections never will.
                self._line.disconnect_idle()
            raise told from error
