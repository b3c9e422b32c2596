"""Cluster: three masters and their replicas. A fault of one node delays the jobs of its own shards."""

import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from django_delayq import enqueue_many
from django_delayq.exceptions import StoreUnavailable
from django_delayq.store.slots import slot_of_shard
from tests.chaos.harness.steady_load import SteadyLoad
from tests.sample_app import tasks
from tests.servers.local_cluster import NODE_TIMEOUT, PATIENT_TIMEOUT, ClusterNode, LocalCluster
from tests.subprocesses import Command, Processes, until

SHARDS = 6


#: Data survive a kill of the server.
DURABLE = {"appendonly": "yes", "appendfsync": "always"}


@pytest.fixture(scope="module")
def cluster(server_program: Path) -> Iterator[LocalCluster]:
    with LocalCluster(server=server_program, options=DURABLE) as started:
        yield started


@pytest.fixture
def commands(processes: Processes, cluster: LocalCluster, request: pytest.FixtureRequest) -> list[Command]:
    """A dispatcher and two workers."""
    cluster.wait_until_ready()
    processes.configure(REDIS=cluster.url, SHARDS=SHARDS, PREFIX=request.node.name, LEASE=3)
    return [processes.dispatcher(), processes.worker(), processes.worker()]


def finish(load: SteadyLoad, processes: Processes, commands: list[Command]) -> None:
    """Wait until all jobs have ended, check them, and end the processes."""
    processes.until_empty()
    load.check(processes, commands)
    assert [command.end() for command in commands] == [0] * len(commands)
    assert not any(command.failures for command in commands)


def master_of(cluster: LocalCluster, shard: int) -> ClusterNode:
    return cluster.master_of(slot_of_shard(shard))


def test_jobs_of_a_killed_master_wait_for_its_replica(
    processes: Processes, cluster: LocalCluster, commands: list[Command]
) -> None:
    victim = master_of(cluster, 1)
    with SteadyLoad() as load:
        load.until_accepted(50)
        began = time.time()
        victim.server.kill()
        cluster.set_node_timeout(NODE_TIMEOUT)
        until(lambda: master_of(cluster, 1) is not victim, what="a promoted replica")
        cluster.set_node_timeout(PATIENT_TIMEOUT)
        # Its shards accept jobs again, so that no error of the first tries counts.
        keyed = tasks.record.using(key=key_of_shard(1)).enqueue()
        load.accepted[keyed.id] = 0.0
        load.until_accepted(50)
        promoted = time.time()
    victim.server.restart()
    processes.until_empty()
    load.check(processes, commands, forgotten=[(began - 1, promoted)])
    assert [command.end() for command in commands] == [0, 0, 0]


def test_a_failover_on_request_delays_no_job_for_long(
    processes: Processes, cluster: LocalCluster, commands: list[Command]
) -> None:
    before = master_of(cluster, 1)
    [replica] = cluster.replicas_of(before)
    with SteadyLoad() as load:
        load.until_accepted(50)
        asked: list[float] = []

        def promoted() -> bool:
            found = master_of(cluster, 1) is replica
            # A failover that takes them too long is given up, and for twice their timeout nobody votes again.
            if not found and time.monotonic() > max(asked, default=0.0) + 2.5 * PATIENT_TIMEOUT / 1_000:
                replica.ask("CLUSTER", "FAILOVER")
                asked.append(time.monotonic())
            return found

        until(promoted, what="the promoted replica")
        load.until_accepted(100)
    assert load.errors == []
    finish(load, processes, commands)


def test_jobs_survive_a_restart_of_the_whole_cluster(
    processes: Processes, cluster: LocalCluster, commands: list[Command]
) -> None:
    with SteadyLoad() as load:
        load.until_accepted(50)
        for node in cluster.nodes:
            node.server.kill()
        load.until_error()
        for node in cluster.nodes:
            node.server.start()
        cluster.set_node_timeout(PATIENT_TIMEOUT)
        load.until_accepted(50)
    finish(load, processes, commands)


def test_only_jobs_without_a_key_go_around_a_master_that_is_down(processes: Processes, server_program: Path) -> None:
    with LocalCluster(server=server_program, replicas=0, options=DURABLE) as cluster:
        processes.configure(REDIS=cluster.url, SHARDS=SHARDS, LEASE=3, ROUTE_AROUND=True, ENQUEUE_TIMEOUT=3)
        commands = [processes.dispatcher(), processes.worker()]
        victim = master_of(cluster, 1)
        with SteadyLoad() as load:
            load.until_accepted(50)
            victim.server.kill()
            # The first call that meets the dead master, maybe before the kill returns; the others go around it.
            until(lambda: load.errors, what="an error of the producer")
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
            slot = slot_of_shard(shard)
            masters = {master_of(cluster, each) for each in range(SHARDS)}
            target = (masters - {cluster.master_of(slot)}).pop()
            cluster.move_slot(slot, target)
        load.until_accepted(50)
    assert load.errors == []
    finish(load, processes, commands)
