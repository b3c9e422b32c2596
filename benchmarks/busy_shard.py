"""Busy shard: how soon an urgent job of a quiet shard begins beside the backlog of another in the same worker.

Run in a venv with the tests' dependencies: python -m benchmarks.busy_shard [ROUNDS], 20 by default; then the throughput
of a backlog, with one shard and with four of which three are idle.
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.rehearsal import percentile, rehearse
from tests.subprocesses import Processes

#: Jobs of 3 ms in one shard, and no-op jobs whose throughput is measured.
BACKLOG, NOOPS = 20_000, 30_000


@contextmanager
def project(shards: int) -> Iterator[Processes]:
    """Start a server and a dispatcher for so many shards."""
    with tempfile.TemporaryDirectory() as folder, rehearse(Path(folder)) as processes:
        processes.configure(SHARDS=shards)
        processes.dispatcher()
        yield processes


def delays(rounds: int) -> list[float]:
    """Return for each round the ms from the enqueue of an urgent job of shard 1 to its start."""
    from django_delayq import enqueue_many
    from tests.sample_app import tasks

    seen = []
    with project(2) as processes, processes.client() as client:
        drafts = (tasks.rest.job(0.003) for _ in range(3 * BACKLOG))
        enqueue_many([draft for draft in drafts if draft._shard == 0][:BACKLOG])
        processes.worker()
        processes.until(lambda: client.zcard(processes.keys.ready("default")) < BACKLOG - 500, what="it to be busy")
        keys = [f"{n}" for n in range(100) if tasks.record.using(key=f"{n}").job(n)._shard == 1]
        for number in range(rounds):
            job = tasks.record.using(key=keys[number], priority=100)
            began = time.time()
            [run] = processes.until_runs(1, job.enqueue(number).id)
            seen.append((run["at"] - began) * 1_000)
            assert client.zcard(processes.keys.ready("default")), "the backlog was over too early"
    return seen


def throughput(shards: int) -> float:
    """Return the jobs a second of a backlog of no-op jobs in one of so many shards."""
    from django_delayq import enqueue_many
    from tests.sample_app import tasks

    with project(shards) as processes, processes.client() as client:
        drafts = (tasks.noop.job(0) for _ in range(6 * NOOPS))
        enqueue_many([draft for draft in drafts if draft._shard == 0][:NOOPS])
        processes.worker()
        waiting = processes.keys.ready("default")
        before, began = client.zcard(waiting), time.monotonic()
        processes.until(lambda: not client.zcard(waiting), what="the backlog to be done", patience=300)
        return float(before / (time.monotonic() - began))


def main(rounds: int) -> None:
    """Print a line a figure."""
    seen = delays(rounds)
    figures = "".join(f"{percentile(seen, share):10.0f}" for share in (0.5, 0.95, 1))
    print(f"urgent job in a quiet shard, ms to its start: median, 19 of 20, worst of {rounds}:{figures}", flush=True)
    for shards in (1, 4, 1, 4):
        print(f"{shards} shards, one of them busy: {throughput(shards):,.0f} no-op jobs/s", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
