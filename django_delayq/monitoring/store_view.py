"""Store view: what one page, or one export of figures, reads of all shards that answer."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from time import time_ns
from typing import Any

from django_delayq.store.queries.shard_reads import ShardReads
from django_delayq.store.queries.snapshot import Process, Snapshot, combined
from django_delayq.store.store import Store


@dataclass(frozen=True)
class StoreView:
    """One look at the store. What it has read stays as it was."""

    store: Store

    @cached_property
    def reads(self) -> ShardReads:
        """The reads of all shards side by side, without those whose server has not answered."""
        return self.store.reads(partial=True)

    @cached_property
    def snapshot(self) -> Snapshot:
        """Counts, queues and processes of all shards that answer; one round trip."""
        return self.load_snapshot()

    @cached_property
    def snapshots(self) -> Mapping[int, Snapshot]:
        """The snapshot of each shard that answers; one round trip."""
        self.load_snapshot()
        return self.snapshots

    def load_snapshot(self, **options: Any) -> Snapshot:
        """Read the snapshots with `options` of `DashboardQueries.snapshot()`; call it before one is read, or again."""
        return self.keep_snapshots(self.store.snapshots(reads=self.reads, **options))

    def keep_snapshots(self, found: Mapping[int, Snapshot]) -> Snapshot:
        """Keep the snapshots of the shards, which were read now; return the one of all."""
        # cached_property keeps its value in __dict__, also in a frozen dataclass.
        self.__dict__.update(snapshots=found, snapshot=combined(list(found.values())), server_us=time_ns() // 1_000)
        return self.snapshot

    @cached_property
    def server_us(self) -> int:
        """This host's time when the snapshot was taken."""
        self.load_snapshot()
        return int(self.__dict__["server_us"])

    @property
    def now_us(self) -> int:
        """Redis's time."""
        return self.snapshot.now_us

    @property
    def answering(self) -> list[int]:
        """The shards whose servers answered to the snapshot, and since."""
        # Read first: it asks all of them.
        return self.reads.answering if self.snapshot else []

    @cached_property
    def alive(self) -> list[Process]:
        """The dispatchers and workers that reported recently."""
        return self.snapshot.alive(lease_us=self.store.config.worker.lease_us)

    @cached_property
    def workers(self) -> list[Process]:
        """The live workers, each once: one of several shards reports to each of them."""
        return list({each.name or each.code: each for each in self.alive if each.slots}.values())

    def workers_of(self, queue: str) -> list[Process]:
        """Return the live workers that claim jobs from a queue."""
        return [each for each in self.alive if each.serves(queue)]
