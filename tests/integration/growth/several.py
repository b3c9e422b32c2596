"""Several processes in one: each has a store of its own, which knows its own layout."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django_delayq import Debounce
from django_delayq.conf.settings import get_config
from django_delayq.store import store as stores
from django_delayq.store.growth.lingering import Lingering
from django_delayq.store.store import Store
from django_delayq.task.handle import JobHandle
from tests.sample_app.tasks import noop

HOUR = 3_600


class Process:
    """One process. `with process:` makes calls there."""

    def __init__(self) -> None:
        self.store = Store(get_config())

    @contextmanager
    def _there(self) -> Iterator[None]:
        before, stores._store = stores._store, self.store
        try:
            yield
        finally:
            stores._store = before

    def enqueue(self, number: int = 0, **options: Any) -> JobHandle:
        """Enqueue a job there, due in an hour; its handle shows its state at the moment."""
        with self._there():
            delay = {} if isinstance(options.get("unique"), Debounce) else {"delay": HOUR}
            return noop.using(**delay, **options).enqueue(number)

    def call(self, call: Any, *args: Any, **options: Any) -> Any:
        """Make any call there."""
        with self._there():
            return call(*args, **options)

    def spread_over(self, shards: int) -> None:
        """Store the next layout, and nothing else of what the command does."""
        self.store.check_shards_once()
        assert self.store.layouts.store(self.store.layout.spread_over(shards))

    def count(self) -> int:
        """Count what is left of the old layout in each shard."""
        return sum(found.total() for shard in self.store._producer_shards if (found := Lingering(shard).count()))


def holders(store: Store, shards: int) -> dict[bytes, list[int]]:
    """Return the digest of each held key, and the shards in which it is held."""
    found = dict[bytes, list[int]]()
    for index in range(shards):
        shard = store.producer_shard(index)
        for digest in shard.execute("HKEYS", shard.keys("unique_keys")):
            found.setdefault(digest, []).append(index)
    return found
