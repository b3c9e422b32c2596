"""Growth: the cost of enqueue and promote, and the bytes of a job, as the number of scheduled jobs grows.

`python -m benchmarks.growth SIZE ...`, in our venv, prints a JSON row for each size. Job bodies have 100 bytes. Single
enqueues alternate between the growing server and a second one with 1,000 jobs, so that noise affects both alike.
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
from django_delayq.store.promotion import Promotion
from django_delayq.testing.local_redis import LocalRedisServer

SMALL, JOBS_AT_ONCE, ROUNDS, TURNS, DUE = 1_000, 20_000, 5, 200, 10_000
#: The text that makes a body of 100 bytes.
TEXT = "x" * 55


def measure(sizes: list[int]) -> list[dict[str, float]]:
    """Run this module in our venv. Returns a row for each size."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "BENCH_URL": "redis://127.0.0.1:1/0"}
    environment |= {"BENCH_RUN_RECORD": "/nonexistent/record", "BENCH_CONFIGURATION": "default"}
    command = [python_of("delayq"), "-m", "benchmarks.growth", *(str(size) for size in sizes)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def table(results: Results) -> str:
    """Return the rows as a Markdown table."""
    headings = (
        "jobs waiting",
        "bytes each",
        "one enqueue",
        "against 1,000 waiting",
        f"{BATCH} at once",
        "promote, Redis",
    )
    lines = [f"| {' | '.join(headings)} |", "| --- " * len(headings) + "|"]
    lines += [
        f"| {row['size']:,} | {row['bytes']:.0f} | {row['enqueue_us']:.0f} µs | {row['ratio']:.2f} × | "
        f"{BATCH * row['bulk_us'] / 1_000:.1f} ms | {row['promote_us']:.1f} µs a job |"
        for row in results.content.get("growth", [])
    ]
    return "\n".join(lines)


class GrowingSchedule:
    """A growing number of scheduled jobs, on a server of their own."""

    def __init__(self, server: LocalRedisServer) -> None:
        from benchmarks.peers import delayq
        from django_delayq.conf.settings import read_config
        from django_delayq.store.store import Store

        config, _ = read_config({"REDIS": server.url})
        assert config is not None
        self._store, self._task, self._client = Store(config), delayq.TASKS["noop"], server.client()
        # Load the scripts and open the connections before the memory is measured.
        self.scheduled = 0
        self.enqueue_us()
        self._empty, self.scheduled = self._client.info("memory")["used_memory"], 0

    @property
    def pid(self) -> int:
        """The server's process id."""
        return int(self._client.info("server")["process_id"])

    def grow(self, size: int) -> float:
        """Enqueue in bulk up to `size` jobs. Returns the µs of Redis for each of the last jobs."""
        spent = 0.0
        while self.scheduled < size:
            jobs, before = self._new_jobs(min(JOBS_AT_ONCE, size - self.scheduled)), self._script_us()
            for at in range(0, len(jobs), BATCH):
                self._store.enqueue_api(0).enqueue(jobs[at : at + BATCH])
            self.scheduled += len(jobs)
            spent = (self._script_us() - before) / len(jobs)
        return spent

    def bytes_each(self) -> float:
        """Return the bytes of the server's memory for each scheduled job."""
        return float(self._client.info("memory")["used_memory"] - self._empty) / self.scheduled

    def enqueue_us(self) -> float:
        """Enqueue one job. Returns the µs of wall time."""
        [job] = self._new_jobs(1)
        began = time.perf_counter()
        self._store.enqueue_api(0).enqueue([job])
        self.scheduled += 1
        return 1e6 * (time.perf_counter() - began)

    def promote_us(self) -> float:
        """Promote jobs that have become due. Returns the µs of Redis for each."""
        for _ in range(DUE // BATCH):
            self._store.enqueue_api(0).enqueue(self._new_jobs(BATCH, delay=0.5))
        time.sleep(0.6)
        promotion, moved, before = Promotion(self._store.shards[0]), 0, self._script_us()
        while more := promotion.promote(["default"]).moved:
            moved += more
        assert moved == DUE, moved
        spent = (self._script_us() - before) / moved
        # Delete the promoted jobs, because the next size measures the memory of scheduled jobs alone.
        ids = [member[:12] for member in self._client.zrange("delayq:{0}:ready:default", 0, -1)]
        self._client.delete("delayq:{0}:ready:default")
        self._client.hdel("delayq:{0}:jobs", *ids)
        return spent

    def _new_jobs(self, count: int, *, delay: float | None = None) -> list[Any]:
        delays = (delay or 3_600 + random.random() * 86_400 for _ in range(count))
        return [self._task.using(delay=each).job(1, TEXT, None).draft for each in delays]

    def _script_us(self) -> float:
        return float(self._client.info("commandstats").get("cmdstat_evalsha", {}).get("usec", 0))


def _pin_processes(*schedules: GrowingSchedule) -> None:
    """Pin this process to one CPU and the servers to another, if the system allows it.

    A server that shares our CPU by chance replies in less than half the time (51 µs instead of 135), at any size.
    """
    if hasattr(os, "sched_setaffinity") and len(cpus := sorted(os.sched_getaffinity(0))) > 1:
        os.sched_setaffinity(0, cpus[:1])
        for schedule in schedules:
            os.sched_setaffinity(schedule.pid, cpus[-1:])


def main() -> None:
    """Measure each size in ascending order."""
    sizes = sorted(int(size) for size in sys.argv[1:])
    with LocalRedisServer() as one, LocalRedisServer() as other:
        growing, small = GrowingSchedule(one), GrowingSchedule(other)
        _pin_processes(growing, small)
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
