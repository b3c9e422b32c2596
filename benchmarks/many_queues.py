"""What an exchange and a promotion cost beside many queues: `python -m benchmarks.many_queues`.

One queue has work; the others were used once and are forgotten, or have a job that is due next month.
"""

import statistics
from collections.abc import Callable
from time import perf_counter
from typing import Any

from django.conf import settings

from django_delayq.testing.local_redis import LocalRedisServer
from tests.shard_apis import DAY, SECOND, ShardApis

SIZES = (1, 100, 1_000, 5_000, 20_000)
ROUNDS = 200
#: How long an empty queue is remembered, and a minute.
LONG = 11 * 60 * SECOND


def measured(client: Any, act: Callable[[], object]) -> str:
    """Return the median of the wall time and the mean of Redis's own, in ms."""
    for _ in range(20):
        act()
    client.config_resetstat()
    wall = []
    for _ in range(ROUNDS):
        begun = perf_counter()
        act()
        wall.append(perf_counter() - begun)
    stats = client.info("commandstats")["cmdstat_evalsha"]
    return f"{statistics.median(wall) * 1_000:.2f} / {stats['usec'] / stats['calls'] / 1_000:.3f}"


def row(apis: ShardApis, title: str) -> None:
    """Print what both cost now."""
    worker, names = apis.worker(), apis.shard.read_served_queues()
    hint: list[list[str]] = [[]]

    def promote() -> None:
        hint[0] = apis.promotion.promote(hint[0]).queues

    exchange = measured(apis.client, lambda: worker.take(1, *names))
    print(f"| {title} | {len(names)} | {exchange} | {measured(apis.client, promote)} |", flush=True)


def fill(apis: ShardApis, count: int, *, delay: int | None = None) -> None:
    """Use so many names once."""
    for at in range(0, count, 250):
        apis.enqueue(
            *[apis.draft(queue=f"customer-{at + number}", delay=delay) for number in range(min(250, count - at))]
        )
    if delay is None:
        worker = apis.worker()
        for at in range(0, count, 250):
            names = [f"customer-{at + number}" for number in range(min(250, count - at))]
            for claims in iter(lambda names=names: worker.take(60, *names).claims, []):
                worker.take(0, settle=[acknowledged(claim) for claim in claims])


def acknowledged(claim: Any) -> Any:
    """Return the settlement of a job that is done."""
    from django_delayq.job.outcome import Action
    from tests.shard_apis import settlement

    return settlement(claim, Action.ACKNOWLEDGE)


def main() -> None:
    """Print a table."""
    settings.configure(USE_TZ=True, SECRET_KEY="x")
    print("wall / in Redis, ms\n\n| names used | served | exchange | promotion |\n|---|---|---|---|")
    for size in SIZES:
        with LocalRedisServer() as server:
            apis = ShardApis(server.url)
            fill(apis, size - 1)
            apis.add(queue="busy", delay=30 * DAY)
            apis.add(queue="busy")
            row(apis, f"{size:,}, a moment ago")
            apis.clock.advance(LONG)
            apis.add(queue="busy")
            hint: list[str] = []
            slowest = 0.0
            while len(apis.shard.read_served_queues()) > 1:
                begun = perf_counter()
                hint = apis.promotion.promote(hint).queues
                slowest = max(slowest, perf_counter() - begun)
            row(apis, f"{size:,}, eleven minutes ago (slowest promotion meanwhile {slowest * 1_000:.1f} ms)")
            apis.close()
    with LocalRedisServer() as server:
        apis = ShardApis(server.url)
        fill(apis, 5_000, delay=30 * DAY)
        apis.add(queue="busy")
        row(apis, "5,000, due next month")
        apis.close()


if __name__ == "__main__":
    main()
