"""What each page of the admin costs Redis: python -m benchmarks.admin_pages [jobs]

Round trips, and milliseconds of the server, with a million pending jobs in eight queues, 100,000 dead letters and an
hour of figures; each page five times, the middle one told. The page's own time is Python's and the templates'.
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

from django_delayq.testing.local_redis import LocalRedisServer

QUEUES = [f"queue-{number}" for number in range(8)]
ROUNDS = 5
#: What our clients send by themselves; the others run inside scripts.
SENT = ("evalsha", "eval", "hget", "hmget", "info", "config|get", "get")
URL = "/admin/django_delayq/queue/"
PAGES = {
    "Overview": "",
    "Overview, 30 days ahead": "?due=month",
    "Pending": "pending/",
    "Pending, 250 rows, last": "pending/?n=250&sort=reversed",
    "Pending, by task": "pending/?task=nothing.of.that.name",
    "Queues": "queues/",
    "One queue": f"queues/{QUEUES[0]}/",
    "Running": "running/",
    "Dead letters": "dead/",
    "Dead letters, by error": "dead/?group=error",
    "Dead letters, by text": "dead/?q=not+there",
    "Tasks": "tasks/",
    "Processes": "processes/",
    "One job": "job/{job}/",
}


def main() -> None:
    """Measure and print."""
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with LocalRedisServer() as server:
        os.environ |= {"DELAYQ_TEST_REDIS": server.url, "DJANGO_SETTINGS_MODULE": "tests.admin.settings"}
        django.setup()
        job_id = _fill(jobs)
        visitor = _visitor()
        print(f"{jobs:,} pending, {jobs // 10:,} dead\n{'page':28} {'trips':>5} {'Redis':>9} {'page':>9}")
        for name, path in PAGES.items():
            rounds = [_visit(visitor, server, URL + path.format(job=job_id)) for _ in range(ROUNDS)]
            trips, redis_ms, page_ms = (statistics.median(column) for column in zip(*rounds, strict=True))
            print(f"{name:28} {trips:5.0f} {redis_ms:6.1f} ms {page_ms:6.0f} ms")


def _fill(jobs: int) -> str:
    """Store the jobs; return the id of one."""
    from django_delayq import enqueue_many, get_store
    from django_delayq.job.outcome import Action, Decision
    from django_delayq.metrics import MetricsBuffer, encode_rows
    from django_delayq.store.claims import Settlement
    from tests.sample_app.tasks import noop

    store, tally = get_store(), MetricsBuffer()
    ahead = ({"queue": queue, "delay": random.uniform(60, 86_400)} for queue in QUEUES * (jobs // len(QUEUES)))
    enqueue_many((noop.using(**options).job(1, "short", kind={"a": 1}) for options in ahead), on_progress=id)
    enqueue_many((noop.using(queue="dying").job(number) for number in range(jobs // 10)), on_progress=id)
    claims = store.claims(store.shards[0], worker=os.urandom(8))
    held: list[Any] = []
    while True:
        ends = [
            Settlement(claim=claim, decision=Decision(action=Action.DEAD_LETTER), attempts=_died(claim))
            for claim in held
        ]
        held = claims.settle_and_claim(claims.prepare(queues=["dying"], want=250, settlements=ends)).claims
        if not held:
            break
    for _ in range(10_000):
        tally.ended("done", queue=random.choice(QUEUES), task=noop.name, lag_us=random.randrange(10_000), run_us=5_000)
    store.process_reports(store.shards[0]).report(
        os.urandom(8), "worker", {"name": "host:1"}, encode_rows(tally.take())
    )
    return noop.using(delay=600, queue=QUEUES[0]).enqueue(1).id


def _died(claim: Any) -> Any:
    error = f"Traceback (most recent call last):\n{random.choice(('KeyError', 'OSError'))}: 'x'"
    return claim.attempts.add(worker="host:1", started_us=1, ended_us=2, ending="failed", error=error)


def _visitor() -> Any:
    from django.contrib.auth import get_user_model
    from django.core.management import call_command
    from django.test import Client

    call_command("migrate", verbosity=0)
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("ann"))
    return client


def _visit(visitor: Any, server: LocalRedisServer, url: str) -> tuple[int, float, float]:
    """Return round trips, ms of Redis, ms of the whole page."""
    with server.client() as client, _counted() as trips:
        before, began = _spent(client), time.perf_counter()
        own = len(trips)
        answer = visitor.get(url)
        took, sent = time.perf_counter() - began, len(trips) - own
        assert answer.status_code == 200, (url, answer.status_code)
        return sent, (_spent(client) - before) / 1_000, took * 1_000


def _spent(client: Any) -> int:
    stats = client.info("commandstats")
    return sum(int(stats.get(f"cmdstat_{name}", {}).get("usec", 0)) for name in SENT)


@contextmanager
def _counted() -> Iterator[list[int]]:
    """Yield a list that grows with each packet sent to Redis by this process."""
    sends: list[int] = []
    send = AbstractConnection.send_packed_command

    def counted(self: Any, command: Any, check_health: bool = True) -> None:
        sends.append(1)
        send(self, command, check_health)

    with patch.object(AbstractConnection, "send_packed_command", counted):
        yield sends


if __name__ == "__main__":
    main()
