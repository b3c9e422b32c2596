"""A slot that moves for long: a job waits for the end of the move as long as its call may take."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from django_delayq import get_store
from django_delayq.exceptions import StoreUnavailable
from django_delayq.job.job import State
from django_delayq.store.slots import hash_tag, slot_of
from tests.sample_app.tasks import noop
from tests.servers.local_cluster import ClusterNode, LocalCluster
from tests.subprocesses import until

SLOT = slot_of(hash_tag(0))


@pytest.fixture(scope="module")
def cluster(server_program: Path) -> Iterator[LocalCluster]:
    with LocalCluster(server=server_program, masters=2, replicas=0) as started:
        yield started


@pytest.fixture
def moving(cluster: LocalCluster, settings: Any) -> Iterator[tuple[ClusterNode, ClusterNode]]:
    """The node that has the slot of the only shard, and the one to which the slot is about to move."""
    settings.DELAYQ = {"REDIS": cluster.url, "ENQUEUE_TIMEOUT": 1}
    assert noop.enqueue().cancel()
    source = cluster.master_of(SLOT)
    target = next(node for node in cluster.nodes if node is not source)
    for node in (source, target):
        node.ask("FLUSHALL")
        node.ask("CONFIG", "RESETSTAT")
    target.ask("CLUSTER", "SETSLOT", SLOT, "IMPORTING", source.id)
    source.ask("CLUSTER", "SETSLOT", SLOT, "MIGRATING", target.id)
    yield source, target
    for node in (target, source):
        node.ask("CLUSTER", "SETSLOT", SLOT, "STABLE")


def test_a_call_waits_for_the_end_of_the_move_and_its_error_can_be_retried(
    moving: tuple[ClusterNode, ClusterNode],
) -> None:
    # One node sends a script to the other one, which has not all of its keys and replies TRYAGAIN.
    with pytest.raises(StoreUnavailable) as caught:
        noop.enqueue()
    assert caught.value.retryable


def test_a_job_is_accepted_once_the_slot_has_moved(moving: tuple[ClusterNode, ClusterNode], settings: Any) -> None:
    source, target = moving
    settings.DELAYQ = settings.DELAYQ | {"ENQUEUE_TIMEOUT": 20}

    def finish() -> None:
        # More often than a route follows redirections in a row.
        until(
            lambda: target.client.info("commandstats").get("cmdstat_asking", {}).get("calls", 0) > 10, what="10 tries"
        )
        for node in (target, source):
            node.ask("CLUSTER", "SETSLOT", SLOT, "NODE", target.id)

    thread = threading.Thread(target=finish, daemon=True)
    thread.start()
    assert noop.enqueue().state is State.READY
    thread.join(20)
    assert get_store().shards[0].route.node.connections.address == ("127.0.0.1", target.port)
