"""Soak: under full load for a long time, memory and keys return to their level whenever all jobs have ended."""

import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from redis import Redis

from django_delayq import enqueue_many
from django_delayq.testing.local_redis import LocalRedisServer
from tests.chaos.harness.options import sized
from tests.chaos.harness.report import STAY
from tests.sample_app import tasks
from tests.stateful.redis_state import noun_of
from tests.subprocesses import Command, Processes

#: Jobs of one round, and rounds until code is loaded, tables have grown, and the allocator has its memory.
ROUND, WARM = 20_000, 5
#: Rounds at the start and at the end whose medians are compared.
COMPARED = 5
GROWTH = 1.05
#: Notifications, which may or may not be pending.
NOTIFICATIONS = frozenset(("notify", "notify_dispatcher"))


@dataclass(frozen=True, slots=True)
class Figures:
    """Bytes of memory in use when no job is left."""

    worker: int
    dispatcher: int
    redis: int


def rss_bytes(command: Command) -> int:
    """Return the bytes of memory that a process has in use."""
    return int(Path(f"/proc/{command.pid}/statm").read_text().split()[1]) * resource.getpagesize()


def load(number: int) -> Iterator[Any]:
    """Yield a round of jobs of many kinds."""
    for n in range(ROUND):
        if n % 500 == 0:
            yield tasks.fail.job(1)
        elif n % 100 == 0:
            yield tasks.noop.using(key=f"key {number} {n}").job(n)
        else:
            yield tasks.noop.using(delay=n % 4 * 0.3, queue=f"queue {n % 5}").job(n, text="x" * (n % 300))


# Some memory of a forked process is that of the process which forked it.
@pytest.mark.usefixtures("new_interpreters")
@pytest.mark.slow
def test_memory_and_keys_return_to_their_level(
    processes: Processes, start_redis: Callable[..., LocalRedisServer], print_now: Callable[[str], None]
) -> None:
    minutes = sized("SOAK", 60.0)
    server = start_redis()
    processes.configure(REDIS=server.url)
    dispatcher, worker = processes.dispatcher("--verbosity", 0), processes.worker("--verbosity", 0)
    rounds: list[Figures] = []
    nouns: set[frozenset[str]] = set()
    over = time.monotonic() + 60 * minutes
    with server.client(protocol=2) as client:
        while time.monotonic() < over or len(rounds) < WARM + 2 * COMPARED:
            enqueue_many(load(len(rounds)), on_progress=lambda _: None)
            processes.until_empty(patience=300)
            client.memory_purge()
            rounds.append(Figures(rss_bytes(worker), rss_bytes(dispatcher), client.info("memory")["used_memory"]))
            if len(rounds) >= WARM:
                nouns.add(remaining_keys(client, processes))
    assert len(nouns) == 1, nouns
    growth = {}
    for name in Figures.__slots__:
        first, last = (
            median(getattr(figures, name) for figures in part)
            for part in (rounds[WARM : WARM + COMPARED], rounds[-COMPARED:])
        )
        growth[name] = (first, last)
    summary = ", ".join(f"{name} {first:,.0f} -> {last:,.0f}" for name, (first, last) in growth.items())
    print_now(f"soak: {len(rounds) * ROUND:,} jobs in {len(rounds)} rounds, {minutes:g} min; bytes: {summary}")
    assert {name for name, (first, last) in growth.items() if last > first * GROWTH} == set(), summary


def remaining_keys(client: Redis, processes: Processes) -> frozenset[str]:
    """Return the keys that exist when no job is left, without notifications."""
    names = {key.decode() for key in client.scan_iter("*", 1_000)}
    nouns = {noun_of(name, processes.keys) for name in names}
    assert nouns <= STAY
    return frozenset(name for name in names if noun_of(name, processes.keys) not in NOTIFICATIONS)
