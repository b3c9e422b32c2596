"""Shard: one Redis and hash tag with all it takes to run a script there; a handle without behaviour of its own."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from django_delayq.clock import Clock
from django_delayq.store.client.blocking_listener import BlockingListener
from django_delayq.store.client.connection import Connections
from django_delayq.store.client.connection_cache import ConnectionCache
from django_delayq.store.client.resp import Part
from django_delayq.store.client.script import Script, with_store_errors
from django_delayq.store.client.script_call import ScriptCall
from django_delayq.store.keys import Keys, decode_queue


class Shard:
    """Index, client, keys and clock of a share of the jobs."""

    def __init__(
        self, *, index: int, line: ConnectionCache, connections: Connections, keys: Keys, clock: Clock
    ) -> None:
        self.index = index
        self.line, self.client = line, line.client
        self.connections = connections
        self.keys = keys
        self.clock = clock
        self._fixed_keys: dict[str, tuple[str, ...]] = {}

    def run(self, script: Script, args: Sequence[Part], *, more_keys: Sequence[str] = (), **named_keys: str) -> Any:
        """Run a script; arguments and errors as for `call()` and its `answer()`."""
        return self.call(script, args, more_keys=more_keys, **named_keys).answer()

    def call(
        self, script: Script, args: Sequence[Part], *, more_keys: Sequence[str] = (), **named_keys: str
    ) -> ScriptCall:
        """Return the call of a script with the clock in front of `args`, not sent.

        Keys it names come from the catalogue, or from `named_keys` where they depend on the call (a queue's);
        `more_keys` follow.
        """
        fixed_keys: tuple[str, ...] = ()
        if named_keys:
            keys = [named_keys[name] if name in named_keys else self.keys(name) for name in script.key_names]
            more_keys = [*keys, *more_keys]
        else:
            fixed_keys = self._fixed_keys.get(script.name, ())
            if not fixed_keys:
                fixed_keys = self._fixed_keys[script.name] = tuple(self.keys(name) for name in script.key_names)
        return ScriptCall(script, self.line, fixed_keys, more_keys, [self.clock.argument(), *args])

    def blocking_listener(self) -> BlockingListener:
        """Return a new connection that hears this shard's bells."""
        return BlockingListener(self.connections, self.client)

    def read_queues(self) -> list[str]:
        """Return the names of all queues with jobs, or that had some in the last ten minutes; sorted."""
        return self._names("ZUNION", 2, self.keys("queues"), self.keys("next_due"))

    def read_served_queues(self) -> list[str]:
        """Return those of them that may have ready jobs: what a worker of all queues serves; sorted."""
        return self._names("ZRANGE", self.keys("queues"), 0, -1)

    def _names(self, *command: Part) -> list[str]:
        # Where the scripts run, not by the client's pool: a connection there may still lead to the server before this.
        return sorted(map(decode_queue, with_store_errors(lambda: self.line.ask(*command), self.client)))

    @cached_property
    def label(self) -> str:
        """Where the shard is, for people."""
        return f"{self.connections.config.display_url} shard {self.index}"
