"""Outages of Redis that are longer than a lease: workers that survive them keep their jobs."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import kill
from pathlib import Path

import pytest

from django_delayq import RetryPolicy
from django_delayq.testing.local_redis import LocalRedisServer
from tests.sample_app import tasks
from tests.subprocesses import Processes

LEASE = 6
ONCE = RetryPolicy(max_attempts=1)


@contextmanager
def killed(server: LocalRedisServer) -> Iterator[None]:
    """Kill the server, and restart it with its file at the end of the block."""
    server.kill()
    yield
    server.restart()


@contextmanager
def frozen(server: LocalRedisServer) -> Iterator[None]:
    """Freeze the server: it keeps its connections and sends no reply."""
    assert server.pid is not None
    kill(server.pid, signal.SIGSTOP)
    yield
    kill(server.pid, signal.SIGCONT)


@pytest.mark.parametrize("outage", [killed, frozen])
def test_workers_keep_their_jobs_during_outage_of_two_leases(
    outage: Callable[[LocalRedisServer], object],
    processes: Processes,
    start_redis: Callable[..., LocalRedisServer],
    tmp_path: Path,
) -> None:
    server = start_redis(options={"appendonly": "yes", "appendfsync": "always"})
    processes.configure(REDIS=server.url, LEASE=LEASE, CONCURRENCY=4)
    commands = [processes.dispatcher(), *(processes.worker() for _ in range(3))]
    during, after = tmp_path / "during", tmp_path / "after"
    jobs = [
        task.enqueue(str(path))
        for path in (during, after)
        for task in (tasks.wait_for, tasks.wait_for.using(retry=ONCE))
        for _ in range(3)
    ]
    processes.until_runs(len(jobs))
    with outage(server):  # type: ignore[attr-defined]
        # Half of the jobs end while Redis is unavailable.
        during.touch()
        # The length of the outage is what the test is about, so it must wait.
        threading.Event().wait(2 * LEASE)
    # A new dispatcher promotes at once, before the retry delay of any worker ends.
    commands.append(processes.dispatcher())
    processes.until_gone(jobs[: len(jobs) // 2])
    after.touch()
    processes.until_gone(jobs)
    assert sorted(run["id"] for run in processes.runs()) == sorted(job.id for job in jobs)
    with server.client() as client:
        assert not client.exists(processes.keys("dead_letters"), processes.keys("attempts"))
    assert "lease lost" not in "".join(command.output for command in commands)
