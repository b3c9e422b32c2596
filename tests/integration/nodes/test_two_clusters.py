"""REDIS names nodes of two clusters: each process may use another one, and the check says so."""

import json
from collections.abc import Iterator
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from tests.servers.local_cluster import LocalCluster
from tests.servers.lost_master import ThreeMasters


@pytest.fixture(scope="module")
def other(server_program: Path) -> Iterator[LocalCluster]:
    with LocalCluster(server=server_program, masters=1, replicas=0) as started:
        yield started


def faults() -> list[str]:
    """Return what the check finds wrong."""
    out = StringIO()
    with suppress(SystemExit):
        call_command("delayq_check", "--json", stdout=out)
    found: list[str] = json.loads(out.getvalue())["faults"]
    return found


def test_nodes_of_another_cluster_are_found(masters: ThreeMasters, other: LocalCluster, delayq_settings: Any) -> None:
    assert faults() == []
    seeds = [masters.cluster.nodes[0].address, other.nodes[0].address]
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "REDIS": {"cluster": seeds}}
    [fault] = faults()
    assert fault.startswith("REDIS names nodes of several clusters: ") and any(seed in fault for seed in seeds)


def test_a_node_that_does_not_answer_is_no_stranger(masters: ThreeMasters, delayq_settings: Any) -> None:
    seeds = [masters.cluster.nodes[0].address, "127.0.0.1:1"]
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "REDIS": {"cluster": seeds}}
    assert faults() == []
