"""Scenarios: what is measured of a system, each on a fresh server. Rates are jobs a second, CPU a share of one core."""

import contextlib
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

from benchmarks.ledger import Untrue
from benchmarks.results import OURS
from benchmarks.sizes import Sizes
from benchmarks.trial import SETTLE, Failed, Trial, trial

Figures = dict[str, float]
HOUR_US = 3_600_000_000


def enqueue(system: str, configuration: str, sizes: Sizes) -> Figures:
    """Enqueue no-op jobs one at a time."""
    with trial(system, configuration, jobs=sizes.enqueue) as place:
        sent = place.produce("send", task="noop", first=0, count=sizes.enqueue, many=False)
    return {"rate": sent["timed"] / sent["seconds"]}


def bulk(system: str, configuration: str, sizes: Sizes) -> Figures:
    """Enqueue no-op jobs by the fastest means the system has for many."""
    with trial(system, configuration, jobs=sizes.jobs) as place:
        sent = place.produce("send", task="noop", first=0, count=sizes.jobs, many=True)
    return {"rate": sent["timed"] / sent["seconds"]}


def drain(system: str, configuration: str, sizes: Sizes, *, processes: int = 1) -> Figures:
    """Run no-op jobs that wait in Redis when the workers begin."""
    return _drain(system, configuration, sizes.jobs, sizes, task="noop", processes=processes)


def drain_two(system: str, configuration: str, sizes: Sizes) -> Figures:
    """Run no-op jobs by two worker processes."""
    return drain(system, configuration, sizes, processes=2)


def waits_threads(system: str, configuration: str, sizes: Sizes) -> Figures:
    """Run jobs that each wait 10 ms, 16 at once in one process."""
    return _drain(system, configuration, sizes.waits_threads, sizes, task="wait", at_once=16)


def waits_asyncio(system: str, configuration: str, sizes: Sizes) -> Figures:
    """Run jobs that each wait 10 ms, 100 at once in one process."""
    return _drain(system, configuration, sizes.waits_asyncio, sizes, task="wait", at_once=100)


def _drain(system: str, configuration: str, jobs: int, sizes: Sizes, **how: Any) -> Figures:
    task, at_once, processes = how["task"], how.get("at_once"), how.get("processes", 1)
    with trial(system, configuration, jobs=jobs) as place:
        place.serve(processes=processes, at_once=at_once, task=task)
        with place.frozen():
            place.produce("send", task=task, first=0, count=jobs, many=True)
            redis, workers = place.redis_seconds(), place.cpu_seconds()
            began = time.perf_counter()
        whole = place.ledger.wait(0, jobs, seconds=sizes.limit, alive=place.alive)
        took, ran = time.perf_counter() - began, place.ledger.ran(0, jobs)
        redis, workers = place.redis_seconds() - redis, place.cpu_seconds() - workers
        place.ledger.check(0, jobs, all_of_them=whole)
    if not ran:
        raise Failed("no job ran")
    return {"rate": ran / took, "ran": ran, "redis_us": 1e6 * redis / ran, "workers_us": 1e6 * workers / ran}


def account(system: str, configuration: str, sizes: Sizes) -> Figures:
    """Drain once more with the time inside redis-py added up: where the CPU time of one of our jobs goes."""
    with trial(system, configuration, jobs=sizes.jobs) as place:
        client_seconds = place.keep_account()
        place.serve()
        with place.frozen():
            place.produce("send", task="noop", first=0, count=sizes.jobs, many=True)
            redis, workers, client = place.redis_seconds(), place.cpu_seconds(), client_seconds()
        place.ledger.wait(0, sizes.jobs, seconds=sizes.limit, alive=place.alive)
        place.ledger.check(0, sizes.jobs)
        redis, workers = place.redis_seconds() - redis, place.cpu_seconds() - workers
        client = client_seconds() - client
        task_us = place.produce("task_cost", count=sizes.jobs)["us"]
    redis_us, workers_us, client_us = (1e6 * spent / sizes.jobs for spent in (redis, workers, client))
    figures = {"redis_us": redis_us, "client_us": client_us, "task_us": task_us}
    return figures | {"ours_us": max(0.0, workers_us - client_us - task_us), "workers_us": workers_us}


def lateness(system: str, configuration: str, sizes: Sizes) -> Figures:
    """Run jobs due evenly over some seconds."""
    return _late(system, configuration, sizes, sizes.spread, spread_us=int(sizes.spread_seconds * 1e6))


def instant(system: str, configuration: str, sizes: Sizes) -> Figures:
    """Run jobs that are all due in the same millisecond."""
    return _late(system, configuration, sizes, sizes.instant, spread_us=0)


def _late(system: str, configuration: str, sizes: Sizes, jobs: int, *, spread_us: int) -> Figures:
    with trial(system, configuration, jobs=jobs) as place:
        place.serve()
        lead_us = int(1e6 * sizes.lead * jobs / 1_000)
        sent = place.produce("send", task="note", first=0, count=jobs, many=True, lead_us=lead_us, spread_us=spread_us)
        due_us = sent["due_us"]
        if sent["ended"] * 1e6 > due_us:
            raise Failed(f"enqueueing {jobs:,} delayed jobs took {sent['seconds']:.1f} s, longer than the first waits")
        seconds = due_us / 1e6 + spread_us / 1e6 - time.time() + sizes.limit
        if not place.ledger.wait(0, jobs, seconds=seconds, alive=place.alive):
            raise Untrue(
                f"{sizes.limit:.0f} s after the last due time {place.ledger.ran(0, jobs):,} of {jobs:,} had run"
            )
        place.ledger.check(0, jobs)
        starts = place.ledger.starts_us(0, jobs)
    late = sorted((start - due_us - spread_us * n // jobs) / 1_000 for n, start in enumerate(starts))
    return _spread(late) | {"early": sum(ms < 0 for ms in late)}


def trips(system: str, configuration: str, sizes: Sizes) -> Figures:
    """Enqueue single jobs while nothing else happens: from the call to the start."""
    with trial(system, configuration, jobs=sizes.trips) as place:
        place.serve(task="note")
        sent = place.produce("trips", first=0, count=sizes.trips)["sent_us"]
        place.ledger.check(0, sizes.trips)
        starts = place.ledger.starts_us(0, sizes.trips)
    return _spread(sorted((start - at) / 1_000 for at, start in zip(sent, starts, strict=True)))


def _spread(late: list[float]) -> Figures:
    return {"p50_ms": statistics.median(late), "p99_ms": late[int(0.99 * len(late))], "last_ms": late[-1]}


def idle(system: str, configuration: str, sizes: Sizes) -> Figures:
    """Watch workers with nothing to do and nothing waiting."""
    with trial(system, configuration, jobs=0) as place:
        place.serve()
        return _watch(place, sizes)


def waiting(system: str, configuration: str, sizes: Sizes) -> Figures:
    """Store delayed jobs for hours ahead: bytes of each; then watch the workers, if they still run others."""
    jobs = sizes.waiting if system == OURS else sizes.waiting_peers
    with trial(system, configuration, jobs=0) as place:
        empty = place.client.info("memory")["used_memory"]
        place.produce("send", task="noop", first=0, count=jobs, many=True, lead_us=2 * HOUR_US, spread_us=24 * HOUR_US)
        used = place.client.info("memory")["used_memory"] - empty
        figures = {"jobs": jobs, "bytes": used / jobs}
        with contextlib.suppress(Failed):
            place.serve()
            figures |= _watch(place, sizes)
        return figures


def _watch(place: Trial, sizes: Sizes) -> Figures:
    """Count what MONITOR shows without what runs inside scripts, and CPU time."""
    time.sleep(SETTLE)
    end, seen = "the end of the watch", 0
    own_port = place.client.client_info()["addr"].rpartition(":")[2]
    with place.watcher() as watcher, watcher.monitor() as monitor:
        redis, workers, began = place.redis_seconds(), place.cpu_seconds(), time.monotonic()
        timer = threading.Timer(sizes.watch, place.client.echo, [end])
        timer.start()
        for entry in monitor.listen():
            if end in entry["command"]:
                break
            seen += entry["client_type"] != "lua" and entry["client_port"] != own_port
        took = time.monotonic() - began
    timer.join()
    workers, redis = place.cpu_seconds() - workers, place.redis_seconds() - redis
    return {
        "requests": seen / took,
        "workers_cpu": workers / took,
        "redis_cpu": redis / took,
        "processes": len(place.pids()),
        "workers_mib": place.memory_mib(),
    }


#: By name, in the order they are run; the name is also an adapter's word for what it cannot do.
SCENARIOS: dict[str, Callable[[str, str, Sizes], Figures]] = {
    "enqueue": enqueue,
    "bulk": bulk,
    "drain": drain,
    "drain_two": drain_two,
    "account": account,
    "trips": trips,
    "lateness": lateness,
    "instant": instant,
    "idle": idle,
    "waiting": waiting,
    "waits_threads": waits_threads,
    "waits_asyncio": waits_asyncio,
}
