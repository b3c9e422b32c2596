"""Digests: the schedules that are stored, and the processes that plant and run their jobs."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from resource import RUSAGE_CHILDREN, getrusage
from typing import Any

from redis import Redis

from benchmarks.local.services import MANAGE, running

DISPATCHER, WORKER = (*MANAGE, "run_dispatcher", "-v", "0"), (*MANAGE, "run_worker", "-v", "0")
ZONES = ("Europe/Berlin", "America/New_York", "Asia/Tokyo")
#: Beside these, so that a million rules differ: each zone has a rule for each second of a day.
MORE_ZONES = (
    *ZONES, "Europe/London", "Europe/Moscow", "Africa/Cairo", "Asia/Kolkata", "Asia/Shanghai", "Australia/Sydney",
    "America/Chicago", "America/Denver", "America/Sao_Paulo",
)  # fmt: skip
_DAY = 86_400


def daily(count: int) -> Iterator[Mapping[str, Any]]:
    """Yield daily schedules, at each five minutes of the day in each of three zones: 864 rules."""
    for number in range(count):
        slot, zone = number // len(ZONES) % (_DAY // 300), ZONES[number % len(ZONES)]
        yield _named(number, cron=f"{slot % 12 * 5} {slot // 12} * * *", tz=zone)


def different(count: int) -> Iterator[Mapping[str, Any]]:
    """Yield daily schedules of which each has a rule of its own."""
    assert count <= _DAY * len(MORE_ZONES), "there are no more different rules"
    for number in range(count):
        zone, second = divmod(number, _DAY)
        cron = f"{second % 60} {second // 60 % 60} {second // 3_600} * * *"
        yield _named(number, cron=cron, tz=MORE_ZONES[zone])


def hourly(count: int, *, second: int, **options: Any) -> Iterator[Mapping[str, Any]]:
    """Yield schedules that all are due at a second of the hour: the next hour is planted while the jobs run."""
    for number in range(count):
        yield _named(number, cron=f"{second % 60} {second // 60} * * * *", tz="UTC", **options)


def name_of(number: int) -> str:
    """Return the name of a schedule."""
    return f"digest:{number:07}"


def _named(number: int, **options: Any) -> Mapping[str, Any]:
    return {"name": name_of(number), "args": [number], **options}


def store(schedules: Iterator[Mapping[str, Any]]) -> None:
    """Store schedules."""
    from benchmarks.schedules.tasks import digest

    digest.schedules.set_many(schedules)


def enqueue(count: int, *, due_us: Callable[[int], int]) -> None:
    """Enqueue jobs without schedules."""
    from benchmarks.schedules.tasks import digest
    from django_delayq import enqueue_many

    def moment(number: int) -> datetime:
        return datetime.fromtimestamp(due_us(number) / 1_000_000, UTC)

    enqueue_many(digest.using(at=moment(number)).job(number) for number in range(count))


@contextmanager
def planted(count: int) -> Iterator[None]:
    """Run a dispatcher during the block, which begins when so many jobs wait."""
    with running([DISPATCHER]):
        wait_until(lambda: waiting() >= count, count, what="jobs to be planted")
        yield


def waiting() -> int:
    """Return how many jobs have not ended."""
    return int(client().hlen(key("jobs")))


def wait_until(is_done: Callable[[], bool], count: int, *, what: str) -> None:
    """Wait until something is done, as long as so many schedules may take."""
    until = time.monotonic() + 60 + count / 500
    while not is_done():
        assert time.monotonic() < until, f"waited too long for {what}"
        time.sleep(0.02)


def cpu_of_processes() -> float:
    """Return the CPU seconds of the processes that have ended."""
    used = getrusage(RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cpu_of_redis() -> float:
    """Return the CPU seconds of the server."""
    used = client().info("cpu")
    return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])


def key(noun: str) -> str:
    """Return a key of the shard."""
    from django_delayq import get_store

    return get_store().shards[0].keys(noun)


# Without a timeout: some commands go through a million entries.
@cache
def client() -> Any:
    """Return a client of the server."""
    return Redis.from_url(os.environ["BENCH_URL"], socket_timeout=None)
