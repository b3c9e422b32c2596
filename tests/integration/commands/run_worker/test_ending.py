"""Ending of a worker: within its grace, beyond it, by a second signal, with a recovered job in a process."""

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from django_delayq import enqueue_many
from django_delayq.testing.local_redis import LocalRedisServer
from tests.integration.commands.run_worker.runs import attempts_of
from tests.sample_app import tasks
from tests.subprocesses import Command, Processes, listeners


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_worker_ends_with_code_0(processes: Processes, number: signal.Signals) -> None:
    worker = processes.worker()
    worker.send(number)
    assert worker.wait() == 0
    assert "Traceback" not in worker.output


def test_a_running_job_ends_within_grace_under_its_lease(processes: Processes, client: Redis, gate: Path) -> None:
    processes.configure(LEASE=2, GRACE=600)
    processes.dispatcher()
    worker = processes.worker()
    job = tasks.wait_for.enqueue(str(gate))
    processes.until_runs(1)
    worker.send(signal.SIGTERM)

    def lease_end() -> float:
        [(_, end)] = client.zrange(processes.keys("leases"), 0, -1, withscores=True)
        return float(end)

    first = lease_end()
    # Two leases later: without the heartbeat the dispatcher would have reclaimed the job.
    processes.until(lambda: lease_end() > first + 4_000_000, what="the heartbeat to go on")
    waiting = tasks.record.enqueue("not taken any more")
    assert worker.running
    gate.touch()
    assert worker.wait() == 0
    assert [event["word"] for event in processes.events()] == ["run", "end"]
    assert job.refresh().state == "gone"
    assert waiting.refresh().state == "ready"


def test_unstarted_claims_are_released_uncounted(processes: Processes, gate: Path) -> None:
    processes.configure(GRACE=600)
    worker = processes.worker("--concurrency", 1)
    processes.until_gone(enqueue_many([tasks.noop.job() for _ in range(300)]))
    # A notification brings one job; the jobs behind it are claimed together.
    alone, signals = tasks.noop.job(), tasks.signal_worker.job(int(signal.SIGTERM), str(gate))
    _, first, *others = enqueue_many([alone, signals, *(tasks.record.job(n) for n in range(20))])
    [run] = processes.until_runs(1)
    assert run["held"] > 1
    for job in others:
        processes.until_state(job, "ready")
    gate.touch()
    assert worker.wait() == 0
    assert first.refresh().state == "gone"
    assert [event["word"] for event in processes.events()] == ["run", "end"]
    assert {attempts_of(job).ended for job in others} == {0}
    assert processes.worker("--drain", "--concurrency", 1).wait() == 0
    assert [run["args"] for run in processes.runs()[1:]] == [[n] for n in range(20)]
    assert {run["attempt"] for run in processes.runs()} == {1}


def test_an_idle_worker_without_redis_does_not_wait_for_its_grace(
    processes: Processes, start_redis: Callable[..., LocalRedisServer]
) -> None:
    server = start_redis()
    processes.configure(REDIS=server.url, GRACE=1_000)
    worker = processes.worker()
    with server.client() as client:
        processes.until(lambda: listeners(client), what="the worker to listen")
    server.kill()
    processes.until(lambda: "lost the connection it listens on" in worker.output, what="it to miss Redis")
    # Its request for jobs has no reply: it retries for some seconds, not for GRACE.
    assert worker.end() == 0
    assert "ends without a reply" in worker.output and "Traceback" not in worker.output


def test_a_worker_ends_at_once_while_it_cannot_read_the_list_of_queues(
    processes: Processes, start_redis: Callable[..., LocalRedisServer]
) -> None:
    server = start_redis()
    processes.configure(REDIS=server.url, GRACE=1_000)
    with server.client() as client:
        client.execute_command("ACL SETUSER default -zrange")
    worker = processes.worker()
    processes.until(lambda: "Worker of" in worker.output, what="the log of what it waits for")
    assert "Redis refused" in worker.output
    assert worker.end() == 0
    assert "ends without" not in worker.output and "Traceback" not in worker.output


@pytest.mark.parametrize("grace", [0, 1])
def test_a_job_that_outlasts_grace_is_interrupted_uncounted_and_ready_at_once(
    processes: Processes, gate: Path, grace: int
) -> None:
    processes.configure(GRACE=grace)
    worker = processes.worker()
    job = tasks.wait_for.enqueue(str(gate))
    processes.until_runs(1)
    assert worker.end() == 0
    attempts = attempts_of(job)
    assert (attempts.ended, attempts.interruptions, attempts.crash_suspected) == (0, 1, False)
    gate.touch()
    # --drain does not wait for later jobs, but without a retry delay this one is due by now.
    assert processes.worker("--drain").wait() == 0
    assert [(run["attempt"], run["recovered"]) for run in processes.runs()] == [(1, False), (1, True)]
    assert job.refresh().state == "gone"


def test_a_second_signal_interrupts_at_once(processes: Processes, gate: Path) -> None:
    processes.configure(GRACE=600)
    worker = processes.worker()
    job = tasks.wait_for.enqueue(str(gate))
    processes.until_runs(1)
    worker.send(signal.SIGTERM)

    # Signals that arrive before the first is handled count as one, so more of them follow.
    def ended() -> bool:
        worker.send(signal.SIGINT)
        return not worker.running

    processes.until(ended, what="the end")
    assert worker.wait() == 0
    assert (attempts_of(job).ended, attempts_of(job).interruptions) == (0, 1)
    assert job.refresh().state == "ready"


@pytest.fixture
def suspect(processes: Processes, gate: Path) -> Iterator[tuple[Command, Any]]:
    """A worker that runs a job again after a crash, and the job."""
    processes.configure(LEASE=2, GRACE=600)
    processes.dispatcher()
    crashed = processes.worker()
    job = tasks.wait_for.enqueue(str(gate))
    processes.until_runs(1)
    crashed.kill()
    worker = processes.worker()
    processes.until_runs(2)
    yield worker, job


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_suspect_has_its_grace_if_the_whole_group_is_signalled(
    processes: Processes, gate: Path, suspect: tuple[Command, Any], number: signal.Signals
) -> None:
    # Ctrl-C in a terminal, and systemd by default, signal every process of the group.
    worker, job = suspect
    worker.send_all(number)
    gate.touch()
    assert worker.wait() == 0
    assert [event["word"] for event in processes.events()] == ["run", "run", "end"]
    assert job.refresh().state == "gone"


def test_a_suspect_cut_short_by_a_shutdown_is_interrupted_not_crashed(
    processes: Processes, suspect: tuple[Command, Any]
) -> None:
    worker, job = suspect

    def ended() -> bool:
        worker.send(signal.SIGTERM)
        return not worker.running

    processes.until(ended, what="the end")
    attempts = attempts_of(job)
    assert [entry["ending"] for entry in attempts.history] == ["lease expired"], json.dumps(attempts.history)
    assert (attempts.interruptions, attempts.recovered) == (1, True)


def test_a_suspect_may_start_processes(processes: Processes, gate: Path) -> None:
    processes.configure(LEASE=2)
    processes.dispatcher()
    crashed = processes.worker()
    job = tasks.crash_then_start_process.enqueue(str(gate))
    crashed.wait()
    processes.worker()
    processes.until_state(job, "gone", "dead")
    assert gate.exists()
    assert [run["attempt"] for run in processes.runs()] == [1, 2]
