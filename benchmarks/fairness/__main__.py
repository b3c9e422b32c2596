"""The command: python -m benchmarks.fairness

A dispatcher and four workers of eight slots, of which two are killed on the way, run 90,000 jobs of one tenant, while
50 others enqueue one each: it prints how many jobs of the big one begin before each of these. Then it prints how often
two tenants with the weights 3 and 1 were served; how much longer 10,000 tenants with one job each take than one tenant
with all of them; and how many bytes of Redis a job of a tenant takes beyond one without. It fails beyond the bounds.
"""

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.local.services import MANAGE, project, running, value_at

WORKERS, SLOTS = 4, 8
#: Jobs of the big tenant, number of the others, and those of them before which a worker is killed.
BIG, OTHERS, KILLED_BEFORE = 90_000, 50, (10, 25)
#: Seconds between two of the others, and for the last of them.
BETWEEN, PATIENCE = 0.1, 60.0
#: Most jobs of the big one that begin before each of the others: the slots, and eight that each worker holds ahead.
MOST_BEFORE = WORKERS * SLOTS + WORKERS * 8
#: Jobs by which shares are counted, and jobs of which the costs are measured.
SHARED, COUNTED = 10_000, 10_000
ROUNDS = 3


class Run(NamedTuple):
    """One run of a job."""

    began_us: int
    tenant: str
    attempt: int


def main() -> None:
    """Measure, and print the figures."""
    with project("benchmarks.fairness.settings") as path:
        exceeded = [_turns(path), _weights(path), _many_tenants(), _memory()]
    sys.exit(any(exceeded))


def _turns(path: Path) -> bool:
    from benchmarks.fairness.tasks import work

    _enqueue(work.using(tenant="big"), BIG)
    sent = {}
    with _workers() as workers:
        _wait_for(path, 200)
        for number in range(OTHERS):
            if number in KILLED_BEFORE:
                workers.pop().kill()
            work.using(tenant=f"other {number}").enqueue()
            sent[f"other {number}"] = time.time_ns() // 1_000
            time.sleep(BETWEEN)
        until, runs = time.monotonic() + PATIENCE, _runs(path)
        while sent.keys() - {run.tenant for run in runs} and time.monotonic() < until:
            time.sleep(0.5)
            runs = _runs(path)
    _clear(path)
    begun = {run.tenant: run.began_us for run in reversed(runs)}
    # Jobs that came back from a killed worker do not count.
    of_big = [run.began_us for run in runs if run.tenant == "big" and run.attempt == 1]
    before = sorted(
        sum(sent_us < began_us < begun[tenant] for began_us in of_big)
        for tenant, sent_us in sent.items()
        if tenant in begun
    )
    print(
        f"{OTHERS} tenants beside {BIG:,} jobs of one: {len(before)} ran, each after {value_at(before, 0.5)} (median), "
        f"at most {before[-1]} jobs of it (bound {MOST_BEFORE})",
        flush=True,
    )
    return len(before) < OTHERS or before[-1] > MOST_BEFORE


def _weights(path: Path) -> bool:
    from benchmarks.fairness.tasks import work

    tenants = [work.using(tenant=name) for name in ("heavy", "light")]
    _enqueue(tenants[0], SHARED)
    _enqueue(tenants[1], SHARED)
    with _workers():
        _wait_for(path, SHARED)
    served = Counter(run.tenant for run in _runs(path)[:SHARED])
    _clear(path)
    print(f"weights 3 and 1: {served['heavy']:,} and {served['light']:,} of {SHARED:,} jobs", flush=True)
    return abs(served["heavy"] / SHARED - 0.75) > 0.05 * 0.75


def _many_tenants() -> bool:
    """Compare the whole drain, and Redis's part of it, in interleaved rounds."""
    from benchmarks.fairness.tasks import noop

    names: dict[str, list[str]] = {"one": ["one"], "many": [f"tenant {number}" for number in range(COUNTED)]}
    seconds: dict[str, list[float]] = {kind: [] for kind in names}
    for _ in range(ROUNDS):
        for kind, tenants in names.items():
            _enqueue_each(noop, tenants)
            begin = time.monotonic()
            subprocess.run([*MANAGE, "run_worker", "--queues", "mail", "--drain"], check=True, capture_output=True)
            seconds[kind].append(time.monotonic() - begin)
            _flush()
    # The start of the worker is part of both.
    ratio = median(seconds["many"]) / median(seconds["one"])
    print(
        f"{COUNTED:,} tenants of one job: {median(seconds['many']):.2f} s, {ratio:.2f} × those of one tenant",
        flush=True,
    )
    return ratio > 1.3


def _memory() -> bool:
    from benchmarks.fairness.tasks import noop

    plain = _bytes_of(lambda: _enqueue(noop.using(queue="default"), COUNTED))
    of_one = _bytes_of(lambda: _enqueue(noop.using(tenant="one"), COUNTED))
    of_many = _bytes_of(lambda: _enqueue_each(noop, [f"tenant {number}" for number in range(COUNTED)]))
    print(
        f"bytes a job: {plain:.0f} without a tenant, {of_one - plain:.0f} more with one, {of_many - plain:.0f} more if "
        f"it is the only job of its tenant",
        flush=True,
    )
    return of_one - plain > 250


@contextmanager
def _workers() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run a dispatcher and the workers during the block, and yield the workers."""
    worker = (*MANAGE, "run_worker", "--queues", "mail", "--concurrency", str(SLOTS))
    with running([(*MANAGE, "run_dispatcher"), *[worker] * WORKERS]) as processes:
        yield processes[1:]


def _enqueue(task: Any, count: int) -> None:
    task.enqueue_many([()] * count)


def _enqueue_each(task: Any, tenants: Sequence[str]) -> None:
    """Enqueue COUNTED jobs of these tenants in turn."""
    from django_delayq import enqueue_many

    enqueue_many(task.using(tenant=tenant).job() for tenant in islice(cycle(tenants), COUNTED))


def _bytes_of(enqueue: Callable[[], None]) -> float:
    """Return the bytes that each of COUNTED jobs takes in Redis."""
    before = _client().info("memory")["used_memory"]
    enqueue()
    after = _client().info("memory")["used_memory"]
    _flush()
    return (after - before) / COUNTED


def _wait_for(path: Path, count: int) -> None:
    """Wait until so many runs have begun."""
    until = time.monotonic() + PATIENCE
    while path.read_bytes().count(b"\n") < count:
        assert time.monotonic() < until, f"{count} jobs did not begin within {PATIENCE:.0f} s"
        time.sleep(0.05)


def _runs(path: Path) -> list[Run]:
    """Return the runs in the order in which they began."""
    rows = (line.rsplit(" ", 1) for line in path.read_text().splitlines())
    return sorted(Run(int(front.split(" ", 1)[0]), front.split(" ", 1)[1], int(attempt)) for front, attempt in rows)


def _clear(path: Path) -> None:
    """Remove all jobs and what is recorded of them."""
    _flush()
    path.write_text("")


def _flush() -> None:
    _client().flushall()


def _client() -> Any:
    from django_delayq import get_store

    return get_store().shards[0].client


if __name__ == "__main__":
    main()
