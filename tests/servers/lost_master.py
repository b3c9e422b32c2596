"""Lost master: a cluster of three masters without replicas, of which one is killed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from django_delayq.job.ids import to_text
from django_delayq.store.slots import slot_of_shard
from tests.admin.conftest import RedisClock
from tests.servers.local_cluster import ClusterNode, LocalCluster
from tests.shard_apis import HOUR, ShardApis

#: Two on each master.
SHARDS = 6


class ThreeMasters:
    """The cluster, and which of its masters is lost."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        #: The master of each shard. Nobody asks a lost one: its client would repeat the question for seconds.
        self._servers = [cluster.master_of(slot_of_shard(shard)) for shard in range(SHARDS)]
        self.lost: ClusterNode | None = None

    @property
    def url(self) -> str:
        """The setting REDIS."""
        return self.cluster.url

    @property
    def lost_shards(self) -> list[int]:
        """The shards of the lost master."""
        return [shard for shard in range(SHARDS) if self._servers[shard] is self.lost]

    @property
    def lost_address(self) -> str:
        """The address of the lost master."""
        assert self.lost is not None
        return self.lost.address

    def lose(self, shard: int) -> None:
        """Kill the master of a shard."""
        self.lost = self._servers[shard]
        self.lost.server.kill()

    def restore(self) -> None:
        """Start the lost master again, which takes two seconds."""
        if self.lost is not None:
            self.lost.server.start()
            self.cluster.wait_until_ready()
            self.lost = None

    @contextmanager
    def moved(self, shard: int) -> Iterator[None]:
        """Have a shard on another master in the `with` block."""
        slot, home = slot_of_shard(shard), self._servers[shard]
        self.cluster.move_slot(slot, next(node for node in self.cluster.nodes if node is not home))
        yield
        self.cluster.move_slot(slot, home)

    def add_jobs(self, number: int = 10) -> dict[int, list[str]]:
        """Empty the living masters and add scheduled jobs to each of their shards; return the ids by shard."""
        for node in self.cluster.nodes:
            if node is not self.lost:
                node.ask("FLUSHALL")
        made = {}
        for shard in range(SHARDS):
            if shard not in self.lost_shards:
                apis = ShardApis(self.url, clock=RedisClock(), shard=shard, SHARDS=SHARDS)
                made[shard] = [to_text(apis.add(at, delay=HOUR), shard) for at in range(number)]
                apis.close()
        return made


@pytest.fixture(scope="module")
def masters(server_program: Path) -> Iterator[ThreeMasters]:
    """Three masters with two shards each."""
    with LocalCluster(server=server_program, masters=3, replicas=0) as cluster:
        yield ThreeMasters(cluster)


@pytest.fixture(autouse=True)
def masters_in_use(masters: ThreeMasters, delayq_settings: Any) -> None:
    """Let this process and those that a test starts use the three masters."""
    delayq_settings.DELAYQ = {"REDIS": masters.url, "SHARDS": SHARDS, "ENQUEUE_TIMEOUT": 1}
