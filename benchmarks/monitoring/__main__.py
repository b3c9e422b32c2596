"""The cost of monitoring: python -m benchmarks.monitoring

It prints the CPU time, the round trips, the longest call of Redis and the bytes of a scrape: a median, with 50 queues,
200 tasks, 2,000 pairs of both, an hour of metrics, 100,000 scheduled jobs and 10,000 endings. Once a minute a scrape
compares the forecast with the endings, which is a row of its own.
"""

import os
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import django

from benchmarks.admin_pages import command_us, counted_packets
from django_delayq.testing.local_redis import LocalRedisServer

QUEUES = [f"queue-{number}" for number in range(50)]
TASKS = [f"shop.tasks.task_{number}" for number in range(200)]
ROUNDS = 15


def main() -> None:
    """Fill Redis, and measure each kind of scrape."""
    with LocalRedisServer() as server:
        os.environ |= {"DELAYQ_TEST_REDIS": server.url, "DJANGO_SETTINGS_MODULE": "tests.admin.settings"}
        django.setup()
        from django_delayq.clock import HOUR_US
        from django_delayq.monitoring.accuracy import Accuracy
        from django_delayq.monitoring.figures import Figures
        from django_delayq.monitoring.prometheus import text
        from django_delayq.testing.fake_clock import FakeClock
        from tests.shard_apis import ShardApis

        stock, accuracy = ShardApis(server.url, clock=FakeClock(time.time_ns() // 1_000 - HOUR_US)), Accuracy()
        store = stock.store
        _fill(stock)
        # The first one learns the queues.
        text(Figures(store, accuracy))
        print(f"{'scrape':24} {'trips':>5} {'CPU':>9} {'page':>9} {'Redis':>9} {'longest':>9} {'text':>9}")
        _row(server, "a scrape", lambda: text(Figures(store, accuracy)))
        _row(server, "with the comparison", lambda: text(Figures(store, Accuracy())))


def _row(server: LocalRedisServer, name: str, scrape: Callable[[], bytes]) -> None:
    rounds = [_measure(server, scrape) for _ in range(ROUNDS)]
    trips, cpu_ms, page_ms, redis_ms, longest_ms, kb = map(statistics.median, zip(*rounds, strict=True))
    times = "".join(f" {ms:6.1f} ms" for ms in (cpu_ms, page_ms, redis_ms, longest_ms))
    print(f"{name:24} {trips:5.0f}{times} {kb:6.1f} kB")


def _measure(server: LocalRedisServer, scrape: Callable[[], bytes]) -> tuple[int, float, float, float, float, float]:
    """Return the round trips, the ms of CPU time, of the whole scrape, of Redis, of its longest call, and the kB."""
    with server.client() as client, counted_packets() as packets:
        client.config_set("slowlog-log-slower-than", 100)
        client.slowlog_reset()
        before, own = command_us(client), len(packets)
        began, worked = time.perf_counter(), time.process_time()
        found = scrape()
        took, cpu, sent = time.perf_counter() - began, time.process_time() - worked, len(packets) - own
        redis_us = command_us(client) - before
        longest_us = max((call["duration"] for call in client.slowlog_get(100)), default=0)
        return sent, cpu * 1_000, took * 1_000, redis_us / 1_000, longest_us / 1_000, len(found) / 1_000


def _fill(stock: Any) -> None:
    """Store an hour of metrics and endings, and jobs of every pair."""
    from django_delayq.job.ids import next_id
    from django_delayq.metrics import MINUTE_US, MetricsBuffer
    from django_delayq.store.process_reports import ProcessReports

    pairs = [(queue, task) for queue in QUEUES for task in TASKS]
    for queue in QUEUES:
        for _ in range(10):
            stock.enqueue(
                *(
                    stock.draft(queue=queue, task=task, delay=random.randrange(60 * MINUTE_US, 1_440 * MINUTE_US))
                    for task in TASKS
                )
            )
    reports = ProcessReports(stock.shard)
    for _ in range(60):
        buffer, endings = MetricsBuffer(), []
        for queue, task in random.sample(pairs, 1_000):
            lag_us, run_us = random.randrange(10_000), random.randrange(10_000_000)
            buffer.count_attempt("done", queue=queue, task=task, lag_us=lag_us, run_us=run_us)
            ended_us = stock.clock.now_us
            endings.append((next_id(), task, queue, 1, "done", ended_us, ended_us - run_us, lag_us, run_us, ""))
        status = {"name": "host:1", "slots": 8, "queues": QUEUES}
        reports.report(b"w" * 8, "worker", status, buffer.take(), endings)
        stock.clock.advance(MINUTE_US)


if __name__ == "__main__":
    main()
