"""Memory: the bytes of Redis that a schedule takes, with the job that waits for its time."""

from pathlib import Path

from benchmarks.local.services import running
from benchmarks.schedules.digests import DISPATCHER, WORKER, client, daily, key, name_of, planted, store, wait_until
from benchmarks.schedules.runs import count_runs

#: Most bytes of a schedule with its last outcome.
TARGET = 700
_KEYS = ("schedules", "next_planting", "jobs", "job_extras", "scheduled:default")


def memory(count: int, path: Path) -> bool:
    """Print the bytes of a schedule before its first job ran, and after it did. Returns whether it takes too many."""
    from benchmarks.schedules.tasks import digest

    before = _used()
    store(daily(count))
    with planted(count):
        pass
    _print("planted, before the first outcome", before, count)
    _make_due("scheduled:default", "next_due")
    with running([DISPATCHER, WORKER, WORKER]):
        wait_until(lambda: count_runs(path) >= count and not client().zcard(key("leases")), count, what="all runs")
    _make_due("next_planting")
    with planted(count):
        pass
    for each in (0, count - 1):
        found = digest.schedules.get(name_of(each))
        assert found is not None
        assert found.runs, "a schedule without an outcome"
    return _print("planted again, with the last outcome", before, count) > TARGET


def _make_due(*nouns: str) -> None:
    """Make all entries due: waiting for them would take days."""
    for name in map(key, nouns):
        client().zunionstore(name, {name: 0})
    client().lpush(key("notify_dispatcher"), "")


def _used() -> int:
    return int(client().info("memory")["used_memory"])


def _print(what: str, before: int, count: int) -> float:
    each = (_used() - before) / count
    parts = ", ".join(f"{noun} {(client().memory_usage(key(noun), samples=0) or 0) / count:.0f}" for noun in _KEYS)
    print(f"memory: {count:,} schedules {what}: {each:.0f} bytes each ({parts}; target {TARGET})", flush=True)
    return each
