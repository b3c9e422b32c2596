"""Scenarios: each measures a system on a new server. Rates are jobs a second, CPU is a share of one core."""

import contextlib
import statistics
import threading
import time
from collections.abc import Callable

from benchmarks.django_jobs.scenarios import django_requests, django_run
from benchmarks.results import OURS
from benchmarks.run_record import InvalidRun
from benchmarks.sizes import Sizes
from benchmarks.trial import SETTLE, Trial, TrialFailed, running_trial

Figures = dict[str, float]
HOUR_US = 3_600_000_000
#: The tasks of `sleeps`, which wait 0, 0.1, 1 and 10 ms.
SLEEPS = ("noop", "sleep_100us", "sleep_1ms", "wait")


def enqueue(system: str, configuration: str, sizes: Sizes) -> Figures:
    """Enqueue no-op jobs one at a time."""
    with running_trial(system, configuration, jobs=sizes.enqueue) as trial:
        sent = trial.run_producer("send", task="noop", first=0, count=sizes.enqueue, many=False)
    return {"rate": sent["timed"] / sent["seconds"]}


def bulk(system: str, configuration: str, sizes: Sizes) -> Figures:
    """Enqueue no-op jobs by the fastest way of the system for many jobs."""
    with running_trial(system, configuration, jobs=sizes.jobs) as trial:
        sent = trial.run_producer("send", task="noop", first=0, count=sizes.jobs, many=True)
    return {"rate": sent["timed"] / sent["seconds"]}


def drain(system: str, configuration: str, sizes: Sizes, *, processes: int = 1) -> Figures:
    """Run no-op jobs that were enqueued while the workers were suspended."""
    return _drain(system, configuration, sizes.jobs, sizes, task="noop", processes=processes)


def drain_write(system: str, configuration: str, sizes: Sizes) -> Figures:
    """Run jobs that each append 16 bytes to a file."""
    return _drain(system, configuration, sizes.jobs, sizes, task="write")


def drain_two(system: str, configuration: str, sizes: Sizes) -> Figures:
    """Run no-op jobs by two worker processes."""
    return drain(system, configuration, sizes, processes=2)


def waits_threads(system: str, configuration: str, sizes: Sizes) -> Figures:
    """Run jobs that each wait 10 ms, 16 at a time in one process."""
    return _drain(system, configuration, sizes.waits_threads, sizes, task="wait", concurrency=16)


def waits_asyncio(system: str, configuration: str, sizes: Sizes) -> Figures:
    """Run jobs that each wait 10 ms, 100 at a time in one process."""
    return _drain(system, configuration, sizes.waits_asyncio, sizes, task="wait", concurrency=100)


def _drain(
    system: str,
    configuration: str,
    jobs: int,
    sizes: Sizes,
    *,
    task: str,
    processes: int = 1,
    concurrency: int | None = None,
) -> Figures:
    with running_trial(system, configuration, jobs=jobs) as trial:
        trial.start_workers(processes=processes, concurrency=concurrency, task=task)
        return trial.drain(task, jobs, limit=sizes.limit)


def sleeps(system: str, configuration: str, sizes: Sizes) -> Figures:
    """Run jobs that wait 0, 0.1, 1 and 10 ms, 8 at a time in one process."""
    figures, first = {}, 0
    with running_trial(system, configuration, jobs=sum(sizes.sleeps)) as trial:
        trial.start_workers(concurrency=8)
        for task, jobs in zip(SLEEPS, sizes.sleeps, strict=True):
            figures[f"rate_{task}"] = trial.drain(task, jobs, first=first, limit=sizes.limit)["rate"]
            first += jobs
    return figures


def account(system: str, configuration: str, sizes: Sizes) -> Figures:
    """Drain again and measure the CPU time inside redis-py, to divide the CPU time of one of our jobs."""
    with running_trial(system, configuration, jobs=sizes.jobs) as trial:
        client_seconds = trial.record_client_time()
        trial.start_workers()
        with trial.paused_workers():
            trial.run_producer("send", task="noop", first=0, count=sizes.jobs, many=True)
            redis, workers, client = trial.redis_seconds(), trial.cpu_seconds(), client_seconds()
        trial.runs.wait(0, sizes.jobs, seconds=sizes.limit, check_alive=trial.check_workers)
        trial.runs.check(0, sizes.jobs)
        redis, workers = trial.redis_seconds() - redis, trial.cpu_seconds() - workers
        client = client_seconds() - client
        task_us = trial.run_producer("task_cost", count=sizes.jobs)["us"]
    redis_us, workers_us, client_us = (1e6 * spent / sizes.jobs for spent in (redis, workers, client))
    figures = {"redis_us": redis_us, "client_us": client_us, "task_us": task_us}
    return figures | {"ours_us": max(0.0, workers_us - client_us - task_us), "workers_us": workers_us}


def lateness(system: str, configuration: str, sizes: Sizes) -> Figures:
    """Run jobs whose due times are spread evenly over some seconds."""
    return _run_delayed(system, configuration, sizes, sizes.spread, spread_us=int(sizes.spread_seconds * 1e6))


def instant(system: str, configuration: str, sizes: Sizes) -> Figures:
    """Run jobs that are all due in the same millisecond."""
    return _run_delayed(system, configuration, sizes, sizes.instant, spread_us=0)


def _run_delayed(system: str, configuration: str, sizes: Sizes, jobs: int, *, spread_us: int) -> Figures:
    with running_trial(system, configuration, jobs=jobs) as trial:
        trial.start_workers()
        lead_us = int(1e6 * sizes.lead * jobs / 1_000)
        sent = trial.run_producer(
            "send", task="record_start", first=0, count=jobs, many=True, lead_us=lead_us, spread_us=spread_us
        )
        due_us = sent["due_us"]
        if sent["ended"] * 1e6 > due_us:
            raise TrialFailed(
                f"enqueueing {jobs:,} delayed jobs took {sent['seconds']:.1f} s, longer than the delay of the first"
            )
        seconds = due_us / 1e6 + spread_us / 1e6 - time.time() + sizes.limit
        if not trial.runs.wait(0, jobs, seconds=seconds, check_alive=trial.check_workers):
            raise InvalidRun(
                f"{sizes.limit:.0f} s after the last due time {trial.runs.count_ran(0, jobs):,} of {jobs:,} had run"
            )
        trial.runs.check(0, jobs)
        starts = trial.runs.starts_us(0, jobs)
    late = sorted((start - due_us - spread_us * n // jobs) / 1_000 for n, start in enumerate(starts))
    return _percentiles(late) | {"early": sum(ms < 0 for ms in late)}


def trips(system: str, configuration: str, sizes: Sizes) -> Figures:
    """Enqueue single jobs to idle workers: the time from the call to the start."""
    with running_trial(system, configuration, jobs=sizes.trips) as trial:
        trial.start_workers(task="record_start")
        sent = trial.run_producer("trips", first=0, count=sizes.trips)["sent_us"]
        trial.runs.check(0, sizes.trips)
        starts = trial.runs.starts_us(0, sizes.trips)
    return _percentiles(sorted((start - at) / 1_000 for at, start in zip(sent, starts, strict=True)))


def _percentiles(late: list[float]) -> Figures:
    return {"p50_ms": statistics.median(late), "p99_ms": late[int(0.99 * len(late))], "last_ms": late[-1]}


def idle(system: str, configuration: str, sizes: Sizes) -> Figures:
    """Observe idle workers without any jobs."""
    with running_trial(system, configuration, jobs=0) as trial:
        trial.start_workers()
        return _measure_idle(trial, sizes)


def waiting(system: str, configuration: str, sizes: Sizes) -> Figures:
    """Measure the bytes of jobs that are due in hours, then the idle workers, if these still run other jobs."""
    jobs = sizes.waiting if system == OURS else sizes.waiting_peers
    with running_trial(system, configuration, jobs=0) as trial:
        empty = trial.client.info("memory")["used_memory"]
        trial.run_producer(
            "send", task="noop", first=0, count=jobs, many=True, lead_us=2 * HOUR_US, spread_us=24 * HOUR_US
        )
        used = trial.client.info("memory")["used_memory"] - empty
        figures = {"jobs": jobs, "bytes": used / jobs}
        with contextlib.suppress(TrialFailed):
            trial.start_workers()
            figures |= _measure_idle(trial, sizes)
        return figures


def _measure_idle(trial: Trial, sizes: Sizes) -> Figures:
    """Measure CPU time, and count the requests that MONITOR shows, without the commands inside scripts."""
    time.sleep(SETTLE)
    end, seen = "end of the observation", 0
    own_port = trial.client.client_info()["addr"].rpartition(":")[2]
    with trial.new_client() as client, client.monitor() as monitor:
        redis, workers, began = trial.redis_seconds(), trial.cpu_seconds(), time.monotonic()
        timer = threading.Timer(sizes.watch, trial.client.echo, [end])
        timer.start()
        for entry in monitor.listen():
            if end in entry["command"]:
                break
            seen += entry["client_type"] != "lua" and entry["client_port"] != own_port
        took = time.monotonic() - began
    timer.join()
    workers, redis = trial.cpu_seconds() - workers, trial.redis_seconds() - redis
    return {
        "requests": seen / took,
        "workers_cpu": workers / took,
        "redis_cpu": redis / took,
        "processes": len(trial.pids()),
        "workers_mib": trial.memory_mib(),
    }


#: Name -> scenario, in the order of a run. Adapters use the names in UNSUPPORTED.
SCENARIOS: dict[str, Callable[[str, str, Sizes], Figures]] = {
    "enqueue": enqueue,
    "bulk": bulk,
    "drain": drain,
    "drain_write": drain_write,
    "drain_two": drain_two,
    "account": account,
    "trips": trips,
    "lateness": lateness,
    "instant": instant,
    "idle": idle,
    "waiting": waiting,
    "waits_threads": waits_threads,
    "waits_asyncio": waits_asyncio,
    "sleeps": sleeps,
    "django_run": django_run,
    "django_requests": django_requests,
}
