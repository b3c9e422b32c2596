"""The cost of each admin page: python -m benchmarks.admin_pages [jobs]

It prints the round trips, the milliseconds of Redis and of its longest call, the CPU time of this process, the
milliseconds of the whole page, and its HTML: the medians of five requests. Redis holds a million scheduled jobs in
eight queues, 100,000 failed ones, 500 running and 500 ready ones, 100,000 recurring schedules and an hour of metrics.
"""

import os
import random
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import django
from redis.connection import AbstractConnection

from django_delayq.store.claims import Claims
from django_delayq.store.process_reports import ProcessReports
from django_delayq.testing.local_redis import LocalRedisServer

QUEUES = [f"queue-{number}" for number in range(8)]
ROUNDS = 5
#: The commands that clients send; all others run inside scripts, whose time is part of `evalsha`.
SENT = ("evalsha", "eval", "hget", "hmget", "hscan", "info", "config|get", "get")
URL = "/admin/django_delayq/queue/"
PAGES = {
    "Overview": "",
    "Overview, 30 days ahead": "?due=month",
    "Overview, 7 days": "?span=week",
    "Coming due": "coming/",
    "Scheduled": "scheduled/",
    "Scheduled, 250 rows, last": "scheduled/?n=250&sort=reversed",
    "Scheduled, by task": "scheduled/?task=nothing.of.that.name",
    "Queues": "queues/",
    "Limits": "limits/",
    "One queue": "queues/ready/",
    "One queue, 250 rows": "queues/ready/?n=250",
    "Running": "running/",
    "Running, 250 rows": "running/?n=250",
    "Finished": "finished/",
    "Finished, by task": "finished/?task=nothing.of.that.name",
    "Failed": "failed/",
    "Failed, 250 rows": "failed/?n=250",
    "Failed, by error": "failed/?group=error",
    "Failed, by text": "failed/?q=not+there",
    "Recurring": "recurring/",
    "Recurring, one schedule": "recurring/?task=noop&prefix=customer+7",
    "Recurring, by state": "recurring/?state=paused",
    "Calendar": "recurring/calendar/",
    "Tasks": "tasks/",
    "One task": "tasks/tests.sample_app.tasks.noop/",
    "Processes": "processes/",
    "Servers": "servers/",
    "One job": "job/{job}/",
}


def main() -> None:
    """Measure every page and print a table."""
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with LocalRedisServer() as server:
        os.environ |= {"DELAYQ_TEST_REDIS": server.url, "DJANGO_SETTINGS_MODULE": "tests.admin.settings"}
        django.setup()
        job_id = _fill(jobs)
        browser = signed_in_client()
        print(f"{jobs:,} scheduled, {jobs // 10:,} failed, {jobs // 10:,} recurring schedules")
        print(f"{'page':28} {'trips':>5} {'Redis':>9} {'longest':>9} {'CPU':>9} {'page':>9} {'HTML':>9}")
        for name, path in PAGES.items():
            rounds = [_measure(browser, server, URL + path.format(job=job_id)) for _ in range(ROUNDS)]
            trips, redis_ms, longest_ms, cpu_ms, page_ms, kb = map(statistics.median, zip(*rounds, strict=True))
            print(
                f"{name:28} {trips:5.0f} {redis_ms:6.1f} ms {longest_ms:6.1f} ms {cpu_ms:6.1f} ms {page_ms:6.0f} ms"
                f" {kb:6.1f} kB"
            )


def _fill(jobs: int) -> str:
    """Store the jobs and metrics. Returns the id of one job."""
    from django_delayq import enqueue_many, get_store
    from django_delayq.metrics import MetricsBuffer
    from tests.sample_app.tasks import noop

    store, tally = get_store(), MetricsBuffer()
    scheduled = ({"queue": queue, "delay": random.uniform(60, 86_400)} for queue in QUEUES * (jobs // len(QUEUES)))
    enqueue_many((noop.using(**options).job(1, "short", kind={"a": 1}) for options in scheduled), on_progress=id)
    enqueue_many((noop.using(queue="dying").job(number) for number in range(jobs // 10)), on_progress=id)
    noop.schedules.set_many(
        {"name": f"customer {number}", "cron": f"{number % 60} {number % 24} * * *", "tz": "Europe/Berlin"}
        for number in range(jobs // 10)
    )
    for queue in ("running", "ready"):
        enqueue_many((noop.using(queue=queue).job(1, "short", kind={"a": 1}) for _ in range(500)), on_progress=id)
    claims = Claims(store.shards[0])
    for _ in range(2):
        claims.settle_and_claim(claims.prepare(queues=["running"], want=250))
    fail_all("dying")
    for _ in range(10_000):
        tally.count_attempt(
            "done", queue=random.choice(QUEUES), task=noop.name, lag_us=random.randrange(10_000), run_us=5_000
        )
    ProcessReports(store.shards[0]).report(os.urandom(8), "worker", {"name": "host:1"}, tally.take())
    return noop.using(delay=600, queue=QUEUES[0]).enqueue(1).id


def fail_all(queue: str) -> None:
    """Make the ready jobs of a queue failed ones."""
    from django_delayq import get_store
    from django_delayq.job.outcome import Action, Decision
    from django_delayq.store.claims import Settlement

    claims, held = Claims(get_store().shards[0]), list[Any]()
    while True:
        settlements = [
            Settlement(claim=claim, decision=Decision(action=Action.DEAD_LETTER), attempts=_failed_attempts(claim))
            for claim in held
        ]
        held = claims.settle_and_claim(claims.prepare(queues=[queue], want=250, settlements=settlements)).claims
        if not held:
            return


def _failed_attempts(claim: Any) -> Any:
    error = f"Traceback (most recent call last):\n{random.choice(('KeyError', 'OSError'))}: 'x'"
    return claim.attempts.add(worker="host:1", started_us=1, ended_us=2, ending="failed", error=error)


def signed_in_client() -> Any:
    """Return a client of a superuser, with a database in memory."""
    from django.conf import settings
    from django.contrib.auth import get_user_model
    from django.core.management import call_command
    from django.test import Client

    call_command("migrate", verbosity=0)
    # The client's host. setup_test_environment() would allow it too, but slows templates down.
    settings.ALLOWED_HOSTS = ["testserver"]
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("ann"))
    return client


def _measure(browser: Any, server: LocalRedisServer, url: str) -> tuple[int, float, float, float, float, float]:
    """Return the round trips, the ms of Redis, its longest call, this process and the whole page, and the kB."""
    with server.client() as client, counted_packets() as packets:
        client.config_set("slowlog-log-slower-than", 100)
        client.slowlog_reset()
        before, began, worked = command_us(client), time.perf_counter(), time.process_time()
        own = len(packets)
        response = browser.get(url)
        took, cpu, sent = time.perf_counter() - began, time.process_time() - worked, len(packets) - own
        assert response.status_code == 200, (url, response.status_code)
        redis_us, kb = command_us(client) - before, len(response.content) / 1_000
        longest_us = max((call["duration"] for call in client.slowlog_get(100)), default=0)
        return sent, redis_us / 1_000, longest_us / 1_000, cpu * 1_000, took * 1_000, kb


def command_us(client: Any) -> int:
    stats = client.info("commandstats")
    return sum(int(stats.get(f"cmdstat_{name}", {}).get("usec", 0)) for name in SENT)


@contextmanager
def counted_packets() -> Iterator[list[int]]:
    """Yield a list that grows by one with each packet that this process sends to Redis."""
    sends: list[int] = []
    send = AbstractConnection.send_packed_command

    def counted(self: Any, command: Any, check_health: bool = True) -> None:
        sends.append(1)
        send(self, command, check_health)

    with patch.object(AbstractConnection, "send_packed_command", counted):
        yield sends


if __name__ == "__main__":
    main()
