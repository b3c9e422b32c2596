"""Roles in a cluster: each does its own steps under its user, wherever the slot of its shard is."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from django_delayq.store.maintenance.acl_roles import ROLES
from django_delayq.store.slots import hash_tag, slot_of
from tests.integration.acl.steps import OWN, STEPS, RoleServer
from tests.servers.local_cluster import LocalCluster
from tests.shard_apis import HOUR

#: Their slots are at both masters; steps run on the last one.
SHARDS = 3


@pytest.fixture(scope="module")
def cluster(server_program: Path) -> Iterator[LocalCluster]:
    with LocalCluster(server=server_program, masters=2, replicas=0) as started:
        yield started


@pytest.fixture(scope="module")
def roles(cluster: LocalCluster) -> Iterator[RoleServer]:
    made = RoleServer(cluster, SHARDS=SHARDS, shard=SHARDS - 1)
    yield made
    made.close()


@pytest.mark.parametrize("name", ROLES)
def test_a_role_does_its_own_steps_and_is_refused_nothing(name: str, roles: RoleServer) -> None:
    roles.refused()
    for step in OWN[name].split():
        assert STEPS[step](roles.apis(name), roles.every), step
    assert roles.refused() == []


def test_a_role_follows_its_shard_to_another_node(roles: RoleServer, cluster: LocalCluster) -> None:
    for node in cluster.nodes[:2]:
        node.ask("FLUSHALL")
    slot, apis = slot_of(hash_tag(SHARDS - 1)), roles.apis("producer")
    source = cluster.master_of(slot)
    target = next(node for node in cluster.nodes[:2] if node is not source)
    read = ("HGET", apis.keys("jobs"), "no job")
    assert apis.shard.execute(*read) is None
    roles.refused()
    # The slot is about to move, and has no keys: its node sends a command to the other one, by ASK.
    target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
    source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
    assert apis.shard.execute(*read) is None
    assert "cmdstat_asking" in target.client.info("commandstats")
    for node in (target, source):
        node.ask("CLUSTER", "SETSLOT", slot, "NODE", target.id)
    raw_id = apis.add(delay=HOUR)
    assert target.ask("HEXISTS", apis.keys("jobs"), raw_id)
    assert roles.refused() == []
    # The clients of the steps do not follow it.
    cluster.move_slot(slot, source)
