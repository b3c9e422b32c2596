"""Processes that are killed, frozen or disconnected: every job runs again if it must, and none is lost or early.

The checks read Redis and the ledger, in which each job records its runs.
"""

import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from django_delayq import RetryPolicy, enqueue_many
from django_delayq.exceptions import StoreError
from django_delayq.testing.local_redis import LocalRedisServer
from tests.sample_app import tasks
from tests.subprocesses import Command, Processes, listeners


def check_runs(processes: Processes, jobs: Sequence[Any], *, once: bool = True) -> None:
    """Check that each job ran, once if `once` is set, and that no run was early."""
    ran = Counter(run["id"] for run in processes.runs())
    assert set(ran) == {job.id for job in jobs}
    if once:
        assert [job for job, runs in ran.items() if runs > 1] == []
    # Handles know the due time to the microsecond, ready jobs only to the millisecond.
    due = {job.id: job.due.timestamp() for job in jobs if job.state != "gone"}
    early = [run for run in processes.runs() if run["at"] < due.get(run["id"], run["due"])]
    assert early == []


def enqueue_spread(count: int, *, within: float) -> list[Any]:
    """Enqueue that many jobs, with due times spread evenly over `within` seconds."""
    jobs = [tasks.record.using(delay=0.5 + within * n / count).job(n) for n in range(count)]
    return list(enqueue_many(jobs))


# Workers


def test_job_of_killed_worker_runs_again_in_its_own_process(processes: Processes, client: Redis, gate: Path) -> None:
    processes.configure(LEASE=2)
    processes.dispatcher()
    killed = processes.worker()
    job = tasks.wait_for.enqueue(str(gate))
    [first] = processes.until_runs(1)
    killed.kill()
    [(_, lease_end_us)] = client.zrange(processes.keys("leases"), 0, -1, withscores=True)
    worker = processes.worker()
    _, second = processes.until_runs(2)
    assert second["at"] * 1_000_000 >= lease_end_us
    assert (first["pid"], first["attempt"], first["recovered"]) == (killed.pid, 1, False)
    assert (second["id"], second["attempt"], second["recovered"]) == (job.id, 2, True)
    assert second["pid"] not in (killed.pid, worker.pid)
    gate.touch()
    processes.until_gone([job])
    assert [event["word"] for event in processes.events()] == ["run", "run", "end"]


def test_recovery_process_ends_with_its_worker(processes: Processes, client: Redis, gate: Path) -> None:
    processes.configure(LEASE=2)
    processes.dispatcher()
    job = tasks.wait_for.enqueue(str(gate))
    for attempt in (1, 2):
        worker = processes.worker()
        assert len(processes.until_runs(attempt)) == attempt
        worker.kill()
    # The first recovery process would also see the gate if it still ran. It must not, because its lease is lost.
    worker = processes.worker()
    processes.until_runs(3)
    gate.touch()
    processes.until_gone([job])
    assert worker.end() == 0
    assert [event["word"] for event in processes.events()] == ["run", "run", "run", "end"]


def test_frozen_worker_cannot_settle_lost_claim(processes: Processes, client: Redis, gate: Path) -> None:
    processes.configure(LEASE=2)
    processes.dispatcher()
    frozen = processes.worker()
    job = tasks.wait_for.enqueue(str(gate))
    processes.until_runs(1)
    frozen.send(signal.SIGSTOP)
    other = processes.worker()
    _, second = processes.until_runs(2)
    assert (second["attempt"], second["recovered"]) == (2, True)
    # The job of the frozen worker ends first and is refused, while the second run still holds the lease.
    other.send_all(signal.SIGSTOP)
    gate.touch()
    frozen.send(signal.SIGCONT)
    processes.until(lambda: "lease lost, its outcome (succeeded) was refused" in frozen.output, what="the refusal")
    other.send_all(signal.SIGCONT)
    processes.until_gone([job])
    attempts = [run["attempt"] for run in processes.runs()]
    assert attempts[:2] == [1, 2]
    assert attempts == sorted(set(attempts))
    processes.until_gone([tasks.record.enqueue()])
    assert (frozen.end(), other.end()) == (0, 0)


def freeze_in_blocking_pop(processes: Processes, client: Redis, worker: Command) -> Any:
    """Freeze an idle worker in its blocking pop, and return a job of one attempt.

    The worker's blocking claim takes the job while the worker is frozen.
    """
    for _ in range(50):
        processes.until(lambda: listeners(client) == 2, what="dispatcher and worker to listen")
        worker.send(signal.SIGSTOP)
        processes.until(lambda: worker.stopped, what="the worker to stop")
        job = tasks.record.using(retry=RetryPolicy(max_attempts=1)).enqueue()
        if client.scard(processes.keys("unconfirmed")):
            return job
        # The pop had timed out, as it does every few seconds.
        worker.send(signal.SIGCONT)
        processes.until_gone([job])
    raise AssertionError("the worker was never frozen in its blocking pop")


def test_worker_frozen_in_blocking_pop_costs_no_attempt(processes: Processes, client: Redis) -> None:
    processes.configure(LEASE=6)
    processes.dispatcher()
    frozen = processes.worker()
    job = freeze_in_blocking_pop(processes, client, frozen)
    other = processes.worker()
    processes.until_gone([job])
    frozen.send(signal.SIGCONT)
    assert (frozen.end(), other.end()) == (0, 0)
    [run] = processes.runs(job.id)
    assert (run["attempt"], run["recovered"], run["pid"]) == (1, False, other.pid)
    assert not client.exists(processes.keys("unconfirmed"), processes.keys("attempts"))


def test_worker_resumed_in_blocking_pop_runs_its_claim(processes: Processes, client: Redis) -> None:
    processes.dispatcher()
    frozen = processes.worker()
    job = freeze_in_blocking_pop(processes, client, frozen)
    frozen.send(signal.SIGCONT)
    processes.until_gone([job])
    assert [run["attempt"] for run in processes.runs(job.id)] == [1]
    assert not client.exists(processes.keys("unconfirmed"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopping_worker_releases_its_blocking_claim(
    processes: Processes, client: Redis, number: signal.Signals
) -> None:
    processes.dispatcher()
    frozen = processes.worker()
    job = freeze_in_blocking_pop(processes, client, frozen)
    frozen.send(number)
    frozen.send(signal.SIGCONT)
    assert frozen.wait() == 0
    # The worker released the claim or ran the job. It did not leave the claim to its lease.
    assert not client.exists(processes.keys("leases"), processes.keys("unconfirmed"))
    processes.worker()
    processes.until_gone([job])
    assert [run["attempt"] for run in processes.runs(job.id)] == [1]


def test_job_that_kills_idle_worker_at_once_counts_as_attempt(processes: Processes, client: Redis) -> None:
    processes.configure(LEASE=2)
    processes.dispatcher()
    for _ in range(2):
        worker = processes.worker()
        processes.until(lambda: listeners(client) == 2, what="dispatcher and worker to listen")
        job = tasks.crash.using(retry=RetryPolicy(max_attempts=1)).enqueue("kill")
        assert worker.wait() != 0
        assert processes.until_state(job, "dead", "ready") == "dead"
    assert not client.exists(processes.keys("unconfirmed"))


def test_frozen_worker_claims_nothing_if_blocking_claims_are_disabled(processes: Processes, client: Redis) -> None:
    """The frozen worker may swallow the notification. The other worker sweeps by itself."""
    processes.configure(CLAIM_BEHIND_POP=False)
    processes.dispatcher()
    frozen, other = processes.worker(), processes.worker()
    processes.until(lambda: listeners(client) == 3, what="all to listen")
    frozen.send(signal.SIGSTOP)
    processes.until(lambda: frozen.stopped, what="the worker to stop")
    jobs = [tasks.record.enqueue() for _ in range(3)]
    processes.until_gone(jobs)
    frozen.send(signal.SIGCONT)
    assert (frozen.end(), other.end()) == (0, 0)
    assert [run["attempt"] for job in jobs for run in processes.runs(job.id)] == [1, 1, 1]


# Dispatchers


def test_jobs_run_once_while_dispatchers_are_killed(processes: Processes, seed: int) -> None:
    processes.worker()
    dispatchers = [processes.start("run_dispatcher"), processes.start("run_dispatcher")]
    jobs = enqueue_spread(2_000, within=4)
    rng, kills = random.Random(seed), 0
    while len(processes.runs()) < 2_000:
        # Kill each in turn at a random time: during its start, asleep, or during a promotion.
        pause = threading.Event()
        pause.wait(rng.random() * 0.7)
        dispatchers[kills % 2].kill()
        dispatchers[kills % 2] = processes.start("run_dispatcher")
        kills += 1
        assert kills < 200, f"{len(processes.runs())} runs of 2,000"
    processes.until_empty()
    check_runs(processes, jobs)
    assert kills >= 3


# Redis


def test_processes_reconnect_after_their_connections_are_cut(processes: Processes, client: Redis) -> None:
    dispatcher, worker = processes.dispatcher(), processes.worker()
    jobs = enqueue_spread(600, within=3)
    while len(processes.runs()) < 600:
        seen = len(processes.runs())
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        processes.until(lambda seen=seen: len(processes.runs()) > min(seen + 30, 599), what="further runs")
    processes.until_empty()
    check_runs(processes, jobs)
    assert dispatcher.running
    assert worker.running
    assert not dispatcher.failures + worker.failures


def test_processes_resume_after_redis_outage(
    processes: Processes, start_redis: Callable[..., LocalRedisServer], gate: Path
) -> None:
    server = start_redis(options={"appendonly": "yes", "appendfsync": "always"})
    processes.configure(REDIS=server.url)
    dispatcher, worker = processes.dispatcher(), processes.worker()
    waiting = tasks.record.after(2).enqueue("waited")
    running = tasks.wait_for.enqueue(str(gate))
    processes.until_runs(1)
    server.kill()
    # The worker keeps an outcome that it cannot send.
    gate.touch()
    processes.until(lambda: processes.events("end"), what="the job to end")
    for command in (dispatcher, worker):
        processes.until(lambda command=command: "Redis did not answer" in command.output, what="both to notice")
    server.start()
    new = enqueue_many([tasks.record.job("new"), tasks.record.after(0.2).job("new and delayed")])
    processes.until_gone([waiting, running, *new])
    check_runs(processes, [waiting, running, *new])
    for command in (dispatcher, worker):
        processes.until(lambda command=command: "works again" in command.output, what="both to resume")
        assert command.running
        assert not command.failures


def test_processes_wait_for_redis_that_starts_later(
    processes: Processes, start_redis: Callable[..., LocalRedisServer]
) -> None:
    server = start_redis()
    processes.configure(REDIS=server.url)
    server.kill()
    commands = [processes.start("run_dispatcher"), processes.start("run_worker")]
    for command in commands:
        processes.until(lambda command=command: "waits for Redis" in command.output, what="both to wait")
    server.start()
    job = tasks.record.after(0.2).enqueue()
    processes.until_gone([job])
    check_runs(processes, [job])
    assert [command.end() for command in commands] == [0, 0]


def test_worker_stops_while_redis_is_unavailable(
    processes: Processes, start_redis: Callable[..., LocalRedisServer], gate: Path
) -> None:
    server = start_redis()
    processes.configure(REDIS=server.url, GRACE=0)
    dispatcher, worker = processes.dispatcher(), processes.worker()
    tasks.wait_for.enqueue(str(gate))
    processes.until_runs(1)
    server.kill()
    assert (dispatcher.end(), worker.end()) == (0, 0)
    assert not dispatcher.failures + worker.failures


def test_flushed_scripts_are_loaded_again(processes: Processes, client: Redis) -> None:
    processes.dispatcher()
    processes.worker()
    jobs = enqueue_spread(1_000, within=2)

    def flushed() -> bool:
        client.script_flush()
        return len(processes.runs()) >= 1_000

    processes.until(flushed, what="1,000 runs")
    processes.until_empty()
    check_runs(processes, jobs)


def test_processes_survive_flush_of_redis(processes: Processes, client: Redis, gate: Path) -> None:
    processes.configure(LEASE=2)
    dispatcher, worker = processes.dispatcher(), processes.worker()
    lost = tasks.wait_for.enqueue(str(gate))
    processes.until_runs(1)
    client.flushall()
    gate.touch()
    processes.until(lambda: "lease lost" in worker.output, what="the refusal")
    job = tasks.record.after(0.2).enqueue()
    processes.until_gone([job])
    assert lost.refresh().state == "gone"
    assert dispatcher.running
    assert not dispatcher.failures + worker.failures


# Many at once


def test_each_job_runs_once_among_many_workers_and_dispatchers(processes: Processes) -> None:
    for name in ("run_dispatcher", "run_worker") * 2:
        processes.start(name)
    now = [tasks.record.using(queue=f"queue {n % 3}").job(n) for n in range(1_000)]
    jobs = [*enqueue_many(now), *enqueue_spread(1_000, within=2)]
    processes.until_runs(2_000)
    processes.until_empty()
    check_runs(processes, jobs)


def test_10_000_jobs_due_at_same_time_run_once_each(processes: Processes) -> None:
    processes.dispatcher()
    processes.worker()
    due = tasks.record.at(datetime.now(UTC) + timedelta(seconds=3))
    jobs = enqueue_many([due.job(n) for n in range(10_000)])
    processes.until_runs(10_000, patience=120)
    processes.until_empty()
    check_runs(processes, jobs)


def test_jobs_enqueued_while_redis_restarts_are_sent_or_refused(
    processes: Processes, start_redis: Callable[..., LocalRedisServer]
) -> None:
    server = start_redis(options={"appendonly": "yes", "appendfsync": "always"})
    processes.configure(REDIS=server.url)
    processes.dispatcher()
    processes.worker()
    accepted, doubtful = [], []
    for round_number in range(3):
        killer = threading.Timer(0.05, server.kill)
        killer.start()
        while server.pid is not None:
            job = tasks.record.job(round_number)
            try:
                enqueue_many([job])
                accepted.append(job)
            except StoreError:
                doubtful.append(job)
        killer.join()
        server.start()
    processes.until_gone(accepted)
    processes.until_empty()
    ran = Counter(run["id"] for run in processes.runs())
    assert accepted
    assert {job.id for job in accepted} <= set(ran) <= {job.id for job in [*accepted, *doubtful]}
    assert set(ran.values()) == {1}
