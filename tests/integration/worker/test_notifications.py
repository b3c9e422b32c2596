"""Notifications: a worker claims jobs without them too, and sends no more requests than it must."""

from collections.abc import Callable
from typing import Any

from django_delayq.testing.local_redis import LocalRedisServer
from tests.sample_app import tasks
from tests.subprocesses import Processes, listening


def test_jobs_run_while_the_server_refuses_the_listening_connection(
    processes: Processes, start_redis: Callable[..., LocalRedisServer]
) -> None:
    server = start_redis()
    processes.configure(REDIS=server.url)
    processes.dispatcher()
    with server.client() as client:
        before = listening(client)
        processes.worker()
        tasks.record.enqueue("first")
        processes.until_runs(1)
        connections = processes.until(lambda: listening(client) - before, what="the worker to listen")
        client.config_set("maxclients", len(client.client_list()) - 1)
        for number in connections:
            client.client_kill_filter(_id=number)
        job = tasks.record.enqueue("second")
        processes.until_gone([job])
        assert not listening(client) - before
        client.config_set("maxclients", 1_000)
        processes.until(lambda: listening(client) - before, what="the worker to listen again")


def test_a_backlog_of_long_jobs_takes_one_request_per_job(processes: Processes, client: Any) -> None:
    processes.dispatcher()
    processes.worker("--concurrency", 1)
    before = client.info("commandstats")["cmdstat_evalsha"]["calls"]
    # The first job keeps the worker busy while the others arrive; otherwise it would listen before it sees them.
    tasks.nap.enqueue(0.3)
    tasks.nap.enqueue_many([(0.06,)] * 40)
    processes.until_empty()
    requests = client.info("commandstats")["cmdstat_evalsha"]["calls"] - before
    # Some more are those that enqueue, and the dispatcher's.
    assert 41 <= requests < 65
