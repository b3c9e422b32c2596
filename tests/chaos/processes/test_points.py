"""Kill points: a process kills itself at a named point between two requests, and another process finishes its work."""

import re
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from django_delayq import RetryPolicy, enqueue_many, get_job
from django_delayq.clock import ServerClock
from django_delayq.store.maintenance.consistency_check import ConsistencyCheck
from tests.sample_app import tasks
from tests.sample_app.kill_points import POINTS, install
from tests.shard_apis import ShardApis
from tests.subprocesses import Processes

LEASE = 2
#: The code of a web process: one transaction with a row and a job.
COMMIT = """
from django.db import connection, transaction
import tests.sample_app.kill_points
from tests.sample_app.tasks import record
with transaction.atomic():
    connection.cursor().execute("INSERT INTO seen VALUES (1)")
    print("job", record.using(key="one").enqueue().id)
"""
POLICY = RetryPolicy(max_attempts=5, base=0.01, cap=0.02)


@pytest.fixture
def apis(redis_url: str, processes: Processes) -> Iterator[ShardApis]:
    processes.configure(LEASE=LEASE, TASK_MODULES=["tests.sample_app.kill_points"])
    opened = ShardApis(redis_url, clock=ServerClock(), LEASE=LEASE)
    yield opened
    opened.close()


def raw(job: Any) -> bytes:
    """Return the raw id of a job, as Redis stores it."""
    return bytes.fromhex(job.id.split("-")[0])


def test_worker_killed_at_named_point_loses_no_job_and_counts_each_lease(
    processes: Processes, client: Redis, apis: ShardApis
) -> None:
    record, fail = tasks.record, tasks.fail.using(retry=POLICY)
    # The point and the task; started runs and whether the lease remains after the kill; the attempts of all runs.
    cases: list[tuple[str, Any, int, bool, list[int]]] = [
        ("after claim", record, 0, True, [2]),
        ("before user code", record, 0, True, [2]),
        ("after user code", record, 1, True, [1, 2]),
        ("before hand-in", record, 1, True, [1, 2]),
        ("after hand-in", record, 1, False, [1]),
        ("before hand-in", fail, 1, True, [1, 2]),
        ("after hand-in", fail, 1, False, [1, 2]),
        ("heartbeat", tasks.nap, 1, True, [1, 2]),
    ]
    jobs = [task.using(queue=f"queue {number}").job(1) for number, (_, task, *_) in enumerate(cases)]
    enqueue_many(jobs)
    ends = {}
    for number, (job, (point, _, runs_before, leased, _)) in enumerate(zip(jobs, cases, strict=True)):
        # One at a time: a worker that runs while the lease of another one ends would take back its job.
        worker = processes.start("run_worker", "--queues", f"queue {number}", DELAYQ_TEST_KILL_AT=point)
        assert worker.wait() == -signal.SIGKILL, worker.output
        assert [run["attempt"] for run in processes.runs(job.id)] == [1] * runs_before, point
        held = [
            end for lease, end in client.zrange(apis.keys("leases"), 0, -1, withscores=True) if lease[:12] == raw(job)
        ]
        assert len(held) == leased, point
        ends[job.id] = held[0] / 1_000_000 if held else 0.0
        if point == "heartbeat":
            [run] = processes.runs(job.id)
            assert ends[job.id] > run["at"] + LEASE, "the lease was not renewed"
    processes.dispatcher()
    processes.worker()
    processes.until_gone(jobs)
    for job, (point, _, runs_before, leased, attempts) in zip(jobs, cases, strict=True):
        runs = processes.runs(job.id)
        assert [run["attempt"] for run in runs] == attempts, point
        assert all(run["recovered"] == leased and run["at"] >= ends[job.id] for run in runs[runs_before:]), point
    for noun in ("leases", "claim_records", "jobs", "attempts"):
        assert not client.exists(apis.keys(noun)), noun


@pytest.mark.parametrize(
    ("point", "reclaimed"), [("between promote and reclaim", 0), ("before reclaim", 0), ("after reclaim", 1)]
)
def test_dispatcher_killed_around_reclaim_counts_lease_once(
    processes: Processes, client: Redis, apis: ShardApis, point: str, reclaimed: int
) -> None:
    job, doomed = (
        tasks.record.using(retry=POLICY).enqueue(),
        tasks.noop.using(retry=RetryPolicy(max_attempts=1)).enqueue(),
    )
    leases = [claim.lease for claim in apis.worker().take(2).claims]
    client.zadd(apis.keys("leases"), dict.fromkeys(leases, 1))
    due = tasks.record.using(delay=0.001, queue="due").enqueue()
    killed = processes.start("run_dispatcher", DELAYQ_TEST_KILL_AT=point)
    assert killed.wait() == -signal.SIGKILL, killed.output
    # Jobs that the same step had promoted stay ready.
    assert apis.where(raw(due)) == ["ready:due"]
    places = [["leases"], ["leases"]] if not reclaimed else [["recovered:default"], ["dead_letters"]]
    assert [apis.where(raw(handle)) for handle in (job, doomed)] == places
    processes.dispatcher()
    processes.until(lambda: client.zcard(apis.keys.recovered("default")), what="the job to be ready again")
    letter = apis.inspection.dead_letter(raw(doomed))
    assert letter is not None
    assert letter.attempts.ended == 1
    assert [apis.where(raw(handle)) for handle in (job, due)] == [["recovered:default"], ["ready:due"]]
    [again] = apis.worker().take().claims
    assert (again.raw_id, again.attempt, again.attempts.crash_suspected) == (raw(job), 2, True)


def test_producer_killed_between_commit_and_send_leaves_row_without_job(
    processes: Processes, client: Redis, apis: ShardApis, tmp_path: Path
) -> None:
    database = tmp_path / "db.sqlite3"
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE seen (attempt INTEGER)")
    environ = {"DELAYQ_TEST_DB_DEFAULT": str(database)}
    killed = processes.start("shell", "--command", COMMIT, DELAYQ_TEST_KILL_AT="between commit and send", **environ)
    assert killed.wait() == -signal.SIGKILL, killed.output
    assert client.keys("*") == []
    # The unique key is free for the next process, which is not killed. The database has the rows of both.
    whole = processes.start("shell", "--command", COMMIT, **environ)
    assert whole.wait() == 0, whole.output
    with sqlite3.connect(database) as connection:
        assert connection.execute("SELECT attempt FROM seen").fetchall() == [(1,), (1,)]
    [first, second] = (re.findall("job (\\S+)", command.output)[-1] for command in (killed, whole))
    assert (get_job(first), list(ConsistencyCheck(apis.shard).walk())) == (None, [])
    processes.worker()
    processes.until_runs(1, second)
    assert len(processes.runs()) == 1


def test_unknown_kill_point_is_refused() -> None:
    with pytest.raises(ValueError, match="'nowhere'.*no such point; known are between commit and send, after claim"):
        install("nowhere")


@pytest.mark.parametrize("point", POINTS)
def test_every_kill_point_is_function_of_package(point: str) -> None:
    place, attribute, *_ = POINTS[point]
    assert callable(getattr(place, attribute))
