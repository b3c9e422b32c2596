"""Servers: a cluster of this machine with a Django project on it, and the CPU time of processes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.local.services import project_on
from tests.servers.local_cluster import ClusterNode, LocalCluster


@contextmanager
def cluster(**options: object) -> Iterator[tuple[LocalCluster, Path]]:
    """Start a cluster and set up Django for it; yield it and the file in which tasks record their runs."""
    with LocalCluster(**options) as nodes, project_on(nodes.url, "benchmarks.cluster.settings") as path:  # type: ignore[arg-type]
        yield nodes, path


def cpu_seconds(node: ClusterNode) -> float:
    """Return the CPU time of a server."""
    return cpu_seconds_of(node.server.pid)


def cpu_seconds_of(pid: int) -> float:
    """Return the CPU time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
