"""Traffic: what processes send to the servers of a cluster, as the kernel and the servers count it."""

import re
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.servers.local_cluster import ClusterNode

#: Two lines of `ss -tinp`: the ports of a connection and its process, then its counters.
_CONNECTION = re.compile(r":(\d+)\s+\S+:(\d+)\s.*pid=(\d+).*\n.*?(?:data_segs_out:(\d+)|$)", re.MULTILINE)


@dataclass(slots=True)
class Sent:
    """What one process sent, and what it has."""

    writes: int = 0
    commands: int = 0
    connections: int = 0
    threads: int = 0
    megabytes: int = 0


class Traffic:
    """Counts what some processes send. A small write is one TCP segment."""

    def __init__(self, nodes: Sequence[ClusterNode], pids: Sequence[int]) -> None:
        self._nodes, self._pids = nodes, pids
        #: Port of the client -> commands that the servers received from it.
        self._commands: dict[int, int] = {}

    def watch(self, *, seconds: float) -> dict[int, Sent]:
        """Count for some seconds, and return what each process sent."""
        over = threading.Event()
        watchers = [threading.Thread(target=self._watch, args=(node, over), daemon=True) for node in self._nodes]
        before = self._segments()
        for watcher in watchers:
            watcher.start()
        time.sleep(seconds)
        after = self._segments()
        over.set()
        found = {pid: Sent() for pid in self._pids}
        for (pid, port), segments in after.items():
            sent = found[pid]
            sent.writes += segments - before.get((pid, port), 0)
            sent.commands += self._commands.get(port, 0)
            sent.connections += 1
        for pid, sent in found.items():
            status = Path(f"/proc/{pid}/status").read_text()
            sent.threads = int(status.partition("Threads:")[2].split()[0])
            sent.megabytes = int(status.partition("VmRSS:")[2].split()[0]) // 1024
        return found

    def _segments(self) -> dict[tuple[int, int], int]:
        """Return the segments that were sent on each connection to the servers, by process and port of the client."""
        output = subprocess.run(["ss", "-tinpH"], capture_output=True, text=True, check=True).stdout
        servers = {node.port for node in self._nodes}
        found = {}
        for port, server, pid, segments in _CONNECTION.findall(output):
            if int(server) in servers and int(pid) in self._pids:
                found[int(pid), int(port)] = int(segments or 0)
        return found

    def _watch(self, node: ClusterNode, over: threading.Event) -> None:
        with node.client.monitor() as monitor:
            while not over.is_set():
                line = monitor.next_command()
                if line["client_type"] != "lua":
                    port = int(line["client_port"])
                    self._commands[port] = self._commands.get(port, 0) + 1
