"""Shard: one Redis and hash tag with all it takes to run a script there; a handle without behaviour of its own."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from django_delayq.clock import Clock
from django_delayq.store.connection import Connections
from django_delayq.store.keys import Keys
from django_delayq.store.scripts import Script, asked
from django_delayq.store.waker import Waker


class Shard:
    """Index, client, keys and clock of a share of the jobs."""

    def __init__(self, *, index: int, client: Any, connections: Connections, keys: Keys, clock: Clock) -> None:
        self.index = index
        self.client = client
        self.connections = connections
        self.keys = keys
        self.clock = clock
        self._fixed_keys: dict[str, list[str]] = {}

    def run(self, script: Script, args: Sequence[Any], *, more_keys: Sequence[str] = (), **named_keys: str) -> Any:
        """Run a script with the clock in front of `args`.

        Keys it names come from the catalogue, or from `named_keys` where they depend on the call (a queue's);
        `more_keys` follow.
        """
        if named_keys:
            keys = [named_keys[name] if name in named_keys else self.keys(name) for name in script.key_names]
        else:
            keys = self._fixed_keys.get(script.name, [])
            if not keys:
                keys = self._fixed_keys[script.name] = [self.keys(name) for name in script.key_names]
        return script.run(self.client, [*keys, *more_keys], [self.clock.argument(), *args])

    def waker(self) -> Waker:
        """Return a new connection that hears this shard's bells."""
        return Waker(self.connections, self.client)

    def read_queues(self) -> list[str]:
        """Return the names of all queues that ever had a job, sorted."""
        found = asked(lambda: self.client.smembers(self.keys("queues")), self.client)
        return sorted(queue_name(name) for name in found)

    @cached_property
    def place(self) -> str:
        """Where the shard is, for people."""
        return f"{self.connections.config.place} shard {self.index}"


def queue_name(stored: bytes) -> str:
    """Return a queue's name from what scripts store."""
    try:
        return stored.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        # Nobody of ours wrote that; it still counts.
        return stored.decode("utf-8", "backslashreplace")


def queue_bytes(queue: str) -> bytes:
    """Return a queue's name as scripts store it."""
    return queue.encode("utf-8", "surrogatepass")
