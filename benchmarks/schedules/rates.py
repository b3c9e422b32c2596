"""Rates: how many schedules a second one client stores, and one dispatcher plants."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.local.services import running
from benchmarks.schedules.digests import (
    DISPATCHER,
    client,
    cpu_of_processes,
    cpu_of_redis,
    daily,
    different,
    store,
    wait_until,
    waiting,
)

#: Least schedules a second: stored with some hundred rules, stored with a rule each, planted.
TARGET_FEW, TARGET_DIFFERENT, TARGET_PLANTED = 10_000, 3_000, 5_000


def setting(count: int, path: Path) -> bool:
    """Print how fast `set_many()` stores schedules. Returns whether it is too slow."""
    is_slow = _store("864 rules", daily(count), count, TARGET_FEW)
    client().flushall()
    return _store("a rule each", different(count), count, TARGET_DIFFERENT) or is_slow


def _store(what: str, schedules: Iterator[Mapping[str, Any]], count: int, target: int) -> bool:
    redis, cpu, began = cpu_of_redis(), time.process_time(), time.monotonic()
    store(schedules)
    seconds, cpu, redis = time.monotonic() - began, time.process_time() - cpu, cpu_of_redis() - redis
    print(
        f"set: {count:,} schedules with {what}: {count / seconds:,.0f} a second, {count / cpu:,.0f} a second of the "
        f"client's CPU, {count / redis:,.0f} of Redis's (target {target:,})",
        flush=True,
    )
    return count / seconds < target


def planting(count: int, path: Path) -> bool:
    """Print how fast a dispatcher plants the jobs of schedules, all at once. Returns whether it is too slow."""
    store(daily(count))
    redis, cpu, started = cpu_of_redis(), cpu_of_processes(), time.monotonic()
    with running([DISPATCHER]):
        wait_until(lambda: waiting() > 0, count, what="the first job to be planted")
        first, began = waiting(), time.monotonic()
        wait_until(lambda: waiting() >= count, count, what="all jobs to be planted")
        ended = time.monotonic()
    cpu, redis, rate = cpu_of_processes() - cpu, cpu_of_redis() - redis, (count - first) / (ended - began)
    print(
        f"plant: {count:,} schedules in {ended - started:.1f} s, the dispatcher's start included; {rate:,.0f} a second "
        f"since the first one; {count / cpu:,.0f} a second of the dispatcher's CPU, {count / redis:,.0f} of Redis's "
        f"(target {TARGET_PLANTED:,})",
        flush=True,
    )
    return rate < TARGET_PLANTED
