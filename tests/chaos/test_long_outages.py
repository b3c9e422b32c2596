"""Outages of Redis longer than a lease, with workers that live through them: they keep their jobs."""

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
    """It is killed, and reads its file when it is back."""
    server.kill()
    yield
    server.restart()


@contextmanager
def frozen(server: LocalRedisServer) -> Iterator[None]:
    """It keeps its connections and answers nothing."""
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
        # Half of them end while nobody can be told.
        during.touch()
        # The outage itself: its length is what the test is about.
        threading.Event().wait(2 * LEASE)
    # One that starts now waits for nothing: it promotes before any worker's wait is over.
    commands.append(processes.dispatcher())
    processes.until_gone(jobs[: len(jobs) // 2])
    after.touch()
    processes.until_gone(jobs)
    assert sorted(run["id"] for run in processes.runs()) == sorted(job.id for job in jobs)
    with server.client() as client:
        assert not client.exists(processes.keys("dead_letters"), processes.keys("attempts"))
    assert "lease lost" not in "".join(command.output for command in commands)
