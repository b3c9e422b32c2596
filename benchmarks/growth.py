"""Growth: what our enqueue and promote cost as the schedule grows, and what a waiting job takes: bodies of 100 bytes.

Run in our venv: python -m benchmarks.growth SIZE ... prints a JSON row a size. Single enqueues are timed in turns at
each size and on a second server with 1,000 waiting, so that the machine's noise meets both.
"""

import json
import os
import random
import statistics
import subprocess
import sys
import time
from typing import Any

from benchmarks.results import Results
from benchmarks.venvs import ROOT, python_of
from django_delayq.store.enqueue import BATCH
from django_delayq.testing.local_redis import LocalRedisServer

SMALL, CHUNK, ROUNDS, TURNS, DUE = 1_000, 20_000, 5, 200, 10_000
#: The text that makes a body of 100 bytes.
TEXT = "x" * 55


def measure(sizes: list[int]) -> list[dict[str, float]]:
    """Run this file in our venv and return a row a size."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "BENCH_URL": "redis://127.0.0.1:1/0"}
    environment |= {"BENCH_LEDGER": "/nonexistent/ledger", "BENCH_CONFIGURATION": "default"}
    command = [python_of("delayq"), "-m", "benchmarks.growth", *(str(size) for size in sizes)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def table(results: Results) -> str:
    """Return the rows as Markdown."""
    heads = ("jobs waiting", "bytes each", "one enqueue", "against 1,000 waiting", f"{BATCH} at once", "promote, Redis")
    lines = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    lines += [
        f"| {row['size']:,} | {row['bytes']:.0f} | {row['enqueue_us']:.0f} µs | {row['ratio']:.2f} × | "
        f"{BATCH * row['bulk_us'] / 1_000:.1f} ms | {row['promote_us']:.1f} µs a job |"
        for row in results.content.get("growth", [])
    ]
    return "\n".join(lines)


class Growing:
    """A schedule that grows, on a server of its own."""

    def __init__(self, server: LocalRedisServer) -> None:
        from benchmarks.peers import delayq
        from django_delayq.conf.settings import read_config
        from django_delayq.store.store import Store

        config, _ = read_config({"REDIS": server.url})
        assert config is not None
        self._store, self._task, self._client = Store(config), delayq.TASKS["noop"], server.client()
        # Scripts and connections are there before anything is counted.
        self.waiting = 0
        self.enqueue_us()
        self._empty, self.waiting = self._client.info("memory")["used_memory"], 0

    @property
    def pid(self) -> int:
        """The server's process."""
        return int(self._client.info("server")["process_id"])

    def grow(self, size: int) -> float:
        """Enqueue in bulk until so many wait; return the µs of Redis that the last jobs took each."""
        spent = 0.0
        while self.waiting < size:
            drafts, before = self._drafts(min(CHUNK, size - self.waiting)), self._script_us()
            for at in range(0, len(drafts), BATCH):
                self._store.enqueue_api(0).enqueue(drafts[at : at + BATCH])
            self.waiting += len(drafts)
            spent = (self._script_us() - before) / len(drafts)
        return spent

    def bytes_each(self) -> float:
        """Return the server's memory for each job that waits."""
        return float(self._client.info("memory")["used_memory"] - self._empty) / self.waiting

    def enqueue_us(self) -> float:
        """Enqueue one job; return µs of wall time."""
        (draft,) = self._drafts(1)
        began = time.perf_counter()
        self._store.enqueue_api(0).enqueue([draft])
        self.waiting += 1
        return 1e6 * (time.perf_counter() - began)

    def promote_us(self) -> float:
        """Make jobs due and promote them; return the µs of Redis that each took."""
        for _ in range(DUE // BATCH):
            self._store.enqueue_api(0).enqueue(self._drafts(BATCH, delay=0.5))
        time.sleep(0.6)
        door, moved, before = self._store.promotion(self._store.shards[0]), 0, self._script_us()
        while more := door.promote(["default"]).moved:
            moved += more
        assert moved == DUE, moved
        spent = (self._script_us() - before) / moved
        # What was promoted goes, with its bodies: the next size counts the memory of what waits.
        ids = [member[:12] for member in self._client.zrange("delayq:{0}:ready:default", 0, -1)]
        self._client.delete("delayq:{0}:ready:default")
        self._client.hdel("delayq:{0}:jobs", *ids)
        return spent

    def _drafts(self, count: int, *, delay: float | None = None) -> list[Any]:
        delays = (delay or 3_600 + random.random() * 86_400 for _ in range(count))
        return [self._task.using(delay=each).job(1, TEXT, None).draft for each in delays]

    def _script_us(self) -> float:
        return float(self._client.info("commandstats").get("cmdstat_evalsha", {}).get("usec", 0))


def _part(*schedules: Growing) -> None:
    """Give this process one CPU and the servers another, where the system lets us: by chance one shares ours.

    That one answers in less than half the time (51 µs for 135), whatever it holds.
    """
    if hasattr(os, "sched_setaffinity") and len(cpus := sorted(os.sched_getaffinity(0))) > 1:
        os.sched_setaffinity(0, cpus[:1])
        for schedule in schedules:
            os.sched_setaffinity(schedule.pid, cpus[-1:])


def main() -> None:
    """Measure each size, from the least."""
    sizes = sorted(int(size) for size in sys.argv[1:])
    with LocalRedisServer() as one, LocalRedisServer() as other:
        growing, small = Growing(one), Growing(other)
        _part(growing, small)
        small.grow(SMALL)
        for _ in range(TURNS):
            small.enqueue_us()
        for size in sizes:
            bulk_us, each = growing.grow(size), growing.bytes_each()
            rounds = [[(growing.enqueue_us(), small.enqueue_us()) for _ in range(TURNS)] for _ in range(ROUNDS)]
            medians = [tuple(statistics.median(column) for column in zip(*pairs, strict=True)) for pairs in rounds]
            row = {
                "size": size,
                "bytes": each,
                "bulk_us": bulk_us,
                "enqueue_us": statistics.median(large for large, _ in medians),
                "ratio": statistics.median(large / little for large, little in medians),
                "promote_us": growing.promote_us(),
            }
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
