"""Cluster: three masters and their replicas. A fault of one node delays the jobs of its own shards."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from django_delayq import enqueue_many
from django_delayq.exceptions import StoreUnavailable
from django_delayq.store.slots import hash_tag, slot_of
from tests.chaos.harness.steady_load import SteadyLoad
from tests.sample_app import tasks
from tests.servers.local_cluster import LocalCluster
from tests.subprocesses import Command, Processes, until

SHARDS = 6


@pytest.fixture
def cluster(server_program: Path) -> Iterator[LocalCluster]:
    with LocalCluster(server=server_program) as started:
        yield started


@pytest.fixture
def commands(processes: Processes, cluster: LocalCluster) -> list[Command]:
    """A dispatcher and two workers."""
    processes.configure(REDIS=cluster.url, SHARDS=SHARDS, LEASE=3)
    return [processes.dispatcher(), processes.worker(), processes.worker()]


def finish(load: SteadyLoad, processes: Processes, commands: list[Command]) -> None:
    """Wait until all jobs have ended, check them, and end the processes."""
    processes.until_empty()
    load.check(processes, commands)
    assert [command.end() for command in commands] == [0] * len(commands)
    assert not any(command.failures for command in commands)


def test_jobs_of_a_killed_master_wait_for_its_replica(
    processes: Processes, cluster: LocalCluster, commands: list[Command]
) -> None:
    with SteadyLoad() as load:
        load.until_accepted(100)
        victim = cluster.master_of(slot_of(hash_tag(1)))
        victim.server.kill()
        until(lambda: cluster.master_of(slot_of(hash_tag(1))) is not victim, what="a promoted replica")
        load.until_accepted(200)
    finish(load, processes, commands)


def test_only_jobs_without_a_key_go_around_a_master_that_is_down(processes: Processes, server_program: Path) -> None:
    durable = {"appendonly": "yes", "appendfsync": "always"}
    with LocalCluster(server=server_program, replicas=0, options=durable) as cluster:
        processes.configure(REDIS=cluster.url, SHARDS=SHARDS, LEASE=3, ROUTE_AROUND=True, ENQUEUE_TIMEOUT=1)
        commands = [processes.dispatcher(), processes.worker()]
        victim = cluster.master_of(slot_of(hash_tag(1)))
        with SteadyLoad() as load:
            load.until_accepted(50)
            victim.server.kill()
            # The first call that meets the dead master; the others go around it.
            load.until_error()
            load.until_accepted(300)
            assert len(load.errors) == 1
            keyed = tasks.record.using(key=key_of_shard(1)).job()
            with pytest.raises(StoreUnavailable) as caught:
                enqueue_many([keyed])
            victim.server.restart()
            cluster.wait_until_ready()
            caught.value.resend()
            load.accepted[keyed.id] = 0.0
            load.until_accepted(50)
        finish(load, processes, commands)


def key_of_shard(shard: int) -> str:
    """Return a unique key of `record` that belongs to a shard."""
    keys = (f"key {number}" for number in count())
    return next(key for key in keys if tasks.record.using(key=key).job().id.endswith(f"-{shard}"))


def test_slots_are_moved_under_load(processes: Processes, cluster: LocalCluster, commands: list[Command]) -> None:
    with SteadyLoad() as load:
        for shard in range(SHARDS):
            load.until_accepted(20)
            slot = slot_of(hash_tag(shard))
            target = next(node for node in cluster.nodes[:3] if node is not cluster.master_of(slot))
            cluster.move_slot(slot, target)
        load.until_accepted(50)
    assert load.errors == []
    finish(load, processes, commands)
