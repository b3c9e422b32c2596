"""The command: python -m benchmarks.cluster idle|kill|migrate|drain|costs|standstill

All of them run on a Redis Cluster of this machine, the first four with 12 shards. `idle`: what an idle dispatcher and
an idle worker send. `kill`: 20,000 delayed jobs, and a master that is killed while they are due; `kill full` with
cluster-require-full-coverage. `migrate`: slots move under the same load. `drain`: the CPU time of each of three masters
for a drain, and that of one master for the same drain. `costs`: the CPU time that servers and processes spend on a
delayed job, and its memory. `standstill`: how long a shard does not answer while its slot moves, by its size.
"""

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from benchmarks.cluster.servers import cluster, cpu_seconds
from benchmarks.cluster.sizing import costs, standstill
from benchmarks.cluster.traffic import Traffic
from benchmarks.local.services import MANAGE, running, value_at
from django_delayq.store.slots import slot_of_shard
from tests.servers.local_cluster import NODE_TIMEOUT

SHARDS = int(os.environ.get("BENCH_SHARDS", "12"))
#: Jobs and seconds of the load, and after how many of these a master is killed.
JOBS, SECONDS, KILLED_AFTER = 20_000, 80.0, 30.0
MIGRATIONS, DRAINED = 50, 40_000
#: A server that keeps what it accepted if it is killed.
DURABLE = {"appendonly": "yes", "appendfsync": "everysec"}
SERVICES = [[*MANAGE, "run_dispatcher"], [*MANAGE, "run_worker"], [*MANAGE, "run_worker"]]


def main() -> None:
    """Measure, and print the figures."""
    measures = {"idle": idle, "kill": kill, "migrate": migrate, "drain": drain, "drained": drained}
    measure = (measures | {"costs": costs, "standstill": standstill})[sys.argv[1]]
    sys.exit(not measure())


def idle() -> bool:
    """Count what idle processes send in a minute. Return whether it is little."""
    with cluster(masters=3, replicas=0) as (nodes, _), running(SERVICES[:2]) as processes:
        # Longer than what processes do once: reading declarations, the first reports.
        time.sleep(10)
        fits = True
        names = {process.pid: name for process, name in zip(processes, ("dispatcher", "worker"), strict=True)}
        for pid, sent in Traffic(nodes.nodes, list(names)).watch(seconds=60).items():
            writes, commands = sent.writes / 60 / 3, sent.commands / 60 / SHARDS
            print(
                f"idle {names[pid]}: {writes:.2f} writes a second and server, {commands:.2f} commands a second and "
                f"shard, {sent.connections} connections, {sent.threads} threads, {sent.megabytes} MB"
            )
            fits = fits and writes <= 0.5 and commands <= 0.35
    return fits


def kill() -> bool:
    """Kill a master in the middle of the load. Return whether no job was lost, and those of the others were in time."""
    full = "full" in sys.argv
    os.environ["BENCH_LEASE"] = "5"
    options = DURABLE | {"cluster-node-timeout": str(NODE_TIMEOUT)}
    options |= {"cluster-require-full-coverage": "yes"} if full else {}
    with cluster(masters=3, replicas=1, options=options) as (nodes, path), running(SERVICES):
        began = enqueue_load()
        victim = nodes.master_of(slot_of_shard(0))
        affected = {shard for shard in range(SHARDS) if nodes.master_of(slot_of_shard(shard)) is victim}
        time.sleep(max(0.0, began + KILLED_AFTER - time.time()))
        killed = time.time()
        victim.server.kill()
        while nodes.master_of(slot_of_shard(0)) is victim:
            time.sleep(0.01)
        promoted = time.time()
        runs = all_runs(path, until=began + SECONDS + 60)
    before = p99([began - due for _, shard, due, began in runs if due < killed * 1e6 - 5e6])
    meanwhile = [run for run in runs if killed <= run[2] / 1e6 <= promoted + 5]
    during = [(shard in affected, began - due) for _, shard, due, began in meanwhile]
    others, own = (p99([late for is_own, late in during if is_own is wanted]) for wanted in (False, True))
    name = "a master killed, full coverage" if full else "a master killed"
    print(
        f"{name}: the replica took over after {promoted - killed:.1f} s; late (p99): "
        f"before {before:.1f} ms, jobs of other shards {others:.1f} ms, of its own {own:.0f} ms"
    )
    return complete(runs) and (full or others < max(2 * before, 20.0))


def migrate() -> bool:
    """Move slots with their jobs between masters under the load. Return whether each job ran once."""
    os.environ["BENCH_LEASE"] = "5"
    with cluster(masters=3, replicas=0) as (nodes, path), running(SERVICES):
        began, standstills = enqueue_load(), list[float]()
        for number in range(MIGRATIONS):
            slot = slot_of_shard(number % SHARDS)
            source = nodes.master_of(slot)
            target = next(each for each in nodes.nodes if each is not source)
            standstills.append(nodes.move_slot(slot, target))
            time.sleep(max(0.0, began + SECONDS * number / MIGRATIONS - time.time()))
        runs = all_runs(path, until=began + SECONDS + 60)
    late = [began - due for _, _, due, began in runs]
    print(f"{MIGRATIONS} slots moved, each in {max(standstills) * 1000:.0f} ms at most; late: p99 {p99(late):.1f} ms")
    return complete(runs)


def drain() -> bool:
    """Drain the same jobs on one master and on three. Return whether each of three spent about a third of the CPU."""
    # Each in a process of its own, since a process has one set of settings.
    outputs = [
        subprocess.run(
            [sys.executable, "-m", "benchmarks.cluster", "drained", masters], capture_output=True, check=True
        )
        for masters in ("1", "3")
    ]
    [alone], each = (list(map(float, output.stdout.splitlines()[-1].split())) for output in outputs)
    shares = [seconds / alone for seconds in each]
    shown = ", ".join(f"{share:.0%}" for share in shares)
    print(f"drain of {DRAINED:,}: one master spends {alone:.2f} s of CPU time, each of three {shown} of it")
    return all(0.8 / 3 <= share <= 1.2 / 3 for share in shares)


def drained() -> bool:
    """Drain jobs on some masters, and print the CPU seconds of each of them."""
    with cluster(masters=int(sys.argv[2]), replicas=0) as (nodes, _):
        from benchmarks.cluster import tasks
        from django_delayq import enqueue_many, get_store

        enqueue_many(tasks.nothing.job() for _ in range(DRAINED))
        before = [cpu_seconds(node) for node in nodes.nodes]
        with running(SERVICES[1:2]):
            while any(shard.execute("HLEN", shard.keys("jobs")) for shard in get_store().shards):
                time.sleep(0.25)
        # The last line: the worker has ended.
        print(*(cpu_seconds(node) - was for node, was in zip(nodes.nodes, before, strict=True)))
    return True


def enqueue_load() -> float:
    """Enqueue the delayed jobs, due one after the other. Return when the first one is due, seconds since the epoch."""
    from benchmarks.cluster import tasks
    from django_delayq import enqueue_many

    began = time.time() + 8.0
    enqueue_many(tasks.record.after(8.0 + SECONDS * number / JOBS).job() for number in range(JOBS))
    return began


def all_runs(path: Path, *, until: float) -> list[tuple[bytes, int, int, int]]:
    """Wait until all jobs have run, or until a time, and return the runs."""
    from benchmarks.cluster.tasks import RECORD

    while path.stat().st_size < JOBS * RECORD.size and time.time() < until:
        time.sleep(0.1)
    # A repeated run would come late.
    time.sleep(8.0)
    return list(RECORD.iter_unpack(path.read_bytes()))


def complete(runs: list[tuple[bytes, int, int, int]]) -> bool:
    """Print how many jobs ran, and how often. Return whether all of them ran, and none early."""
    counts = Counter(id for id, *_ in runs)
    early = sum(began < due for _, _, due, began in runs)
    print(f"{len(counts):,} of {JOBS:,} jobs ran, {len(runs) - len(counts)} of them again, {early} early")
    return len(counts) == JOBS and not early


def p99(late_us: list[int]) -> float:
    """Return the lateness in ms that 99 of 100 do not exceed."""
    return value_at(sorted(late_us), 0.99) / 1_000


if __name__ == "__main__":
    main()
