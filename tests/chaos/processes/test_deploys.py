"""Deploys: processes of two releases side by side. Jobs wait for a worker that can run them, and nothing is counted.

A job that does not fit waits for 1 s, then twice as long each time up to 30 s. Some tests reschedule it instead.
"""

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from django_delayq import enqueue_many
from django_delayq.job.attempts import AttemptHistory
from django_delayq.task.task import Task
from tests.inspection import inspection
from tests.sample_app import async_tasks, tasks, two_releases
from tests.subprocesses import PATIENCE, Command, Processes

MODULES = ("tests.sample_app.two_releases",)
#: Seconds that a stopped worker waits in the rolling deploy, and that its longest jobs run.
GRACE, LONG = 0.1, 0.6


def start_older_release(processes: Processes, **delayq: Any) -> Command:
    processes.configure(TASK_MODULES=MODULES, **delayq)
    processes.dispatcher()
    return processes.worker(DELAYQ_TEST_RELEASE="older")


def enqueue_in_newer_format(client: Redis, processes: Processes) -> Any:
    """Enqueue a job whose body only a newer release can read."""
    job = tasks.record.after(hours=1).enqueue("newer")
    rewrite(client, processes, job, 99)
    assert job.reschedule(delay=0)
    return job


def rewrite(client: Redis, processes: Processes, job: Any, version: int) -> None:
    """Overwrite the format version of a body."""
    body = client.hget(processes.keys("jobs"), raw_id(job))
    client.hset(processes.keys("jobs"), raw_id(job), bytes([version]) + body[1:])


def raw_id(job: Any) -> bytes:
    return bytes.fromhex(job.id.split("-")[0])


def attempts_of(client: Redis, processes: Processes, job: Any) -> AttemptHistory:
    return AttemptHistory.unpack(client.hget(processes.keys("attempts"), raw_id(job)))


def test_jobs_of_newer_release_wait_for_newer_worker(processes: Processes, client: Redis) -> None:
    older = start_older_release(processes)
    unknown, unfit = two_releases.brand_new.enqueue(1), two_releases.greet.enqueue("Ada", "Countess")
    newer = enqueue_in_newer_format(client, processes)
    fits = tasks.record.enqueue()
    reasons = {unknown: "unknown task", unfit: "arguments do not fit", newer: "newer version"}
    for job, reason in reasons.items():
        processes.until(lambda job=job: attempts_of(client, processes, job).waiting_since_us, what="a wait")
        found = attempts_of(client, processes, job)
        assert (found.waiting_for, found.ended, found.history) == (reason, 0, ())
    processes.until_gone([fits])
    assert [run["id"] for run in processes.runs()] == [fits.id]
    assert older.end() == 0
    assert not older.failures
    # Once for each job, however often it was tried.
    assert [older.output.count(f"{job.id} of") for job in (unknown, unfit)] == [1, 1]
    processes.worker(DELAYQ_TEST_RELEASE="newer")
    # A newer release could read the body. This one can after the version is restored.
    rewrite(client, processes, newer, 1)
    processes.until_gone(reasons)
    runs = {run["id"]: (run["attempt"], run["recovered"], run["args"]) for run in processes.runs()}
    assert runs[unknown.id] == (1, False, [1])
    assert runs[unfit.id] == (1, False, ["Ada", "Countess"])
    assert runs[newer.id] == (1, False, ["newer"])
    assert len(processes.runs()) == 4


def test_jobs_that_no_worker_can_run_become_dead_letters_with_their_reason(processes: Processes, client: Redis) -> None:
    worker = start_older_release(processes, UNKNOWN_TASK_TTL=2)
    unknown, unfit = two_releases.brand_new.enqueue(1), two_releases.greet.enqueue("Ada", "Countess")
    newer = enqueue_in_newer_format(client, processes)
    expected = {unknown: "unknown task", unfit: "arguments do not fit", newer: "newer version"}
    for job, reason in expected.items():
        processes.until(lambda job=job: client.zscore(processes.keys("dead_letters"), raw_id(job)), what="dead letter")
        dead = inspection().dead_letter(raw_id(job))
        assert dead is not None and dead.attempts.ended == 1
        assert [entry["ending"] for entry in dead.attempts.history] == [reason]
    assert processes.runs() == []
    assert worker.end() == 0
    assert not worker.failures


@pytest.mark.parametrize("pool", ["threads", "processes", "asyncio"])
def test_a_job_that_five_workers_were_stopped_in_still_ends_well(
    processes: Processes, client: Redis, gate: Path, pool: str
) -> None:
    processes.configure(TASK_MODULES=["tests.sample_app.async_tasks"], GRACE=0)
    task = async_tasks.wait_for if pool == "asyncio" else tasks.wait_for
    job = task.using(retry=two_releases.ONCE).enqueue(str(gate))
    for stops in range(5):
        worker = processes.worker(f"--pool={pool}", "--concurrency=1")
        processes.until_runs(stops + 1)
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0
        found = attempts_of(client, processes, job)
        assert (found.ended, found.interruptions, found.recovered) == (0, stops + 1, True)
    processes.worker(f"--pool={pool}", "--concurrency=1")
    processes.until_runs(6)
    gate.touch()
    processes.until_gone([job])
    assert [(run["attempt"], run["recovered"]) for run in processes.runs()] == [(1, False), *[(1, True)] * 5]


# The rolling deploy


def older(name: str, func: Callable[..., None]) -> Task[..., Any]:
    """Return a task as processes of the older release have it."""
    return Task(func=func, name=f"{two_releases.__name__}.{name}", retry=two_releases.ONCE)


GREET, RETIRED = older("greet", lambda name: None), older("retired", lambda *args: None)
#: Release -> what its web processes enqueue, with the number of the job. Both enqueue `linger`.
PRODUCERS: dict[str, list[Callable[[int], Any]]] = {
    "older": [lambda n: GREET.job(f"{n}"), lambda n: RETIRED.job(n), lambda n: tasks.record.job(n)],
    "newer": [
        lambda n: two_releases.greet.job(f"{n}", "Countess"),
        lambda n: two_releases.brand_new.job(n),
        lambda n: tasks.record.job(n),
    ],
}
#: Tasks that only one release can run.
BOUND = {"older": ("retired",), "newer": ("brand_new",)}


def batches(count: int, parts: int, dice: random.Random) -> Iterator[list[Any]]:
    """Make jobs of both releases in random order, one of twenty of them long.

    The first job of each batch runs until its worker is stopped.
    """
    made = 0
    for part in range(1, parts + 1):
        drafts = []
        for number in range(made, count * part // parts):
            if not drafts:
                drafts.append(two_releases.hold.job(PATIENCE))
            elif number % 20 == 0:
                drafts.append(two_releases.linger.job(LONG))
            else:
                drafts.append(dice.choice(PRODUCERS[dice.choice(["older", "newer"])])(number))
        made = count * part // parts
        yield drafts


def all_ended(client: Redis, processes: Processes, jobs: list[Any]) -> bool:
    """Let the jobs that wait be tried at once; return whether none is left."""
    left = {member[:12] for member in client.zrange(processes.keys.scheduled("default"), 0, -1)}
    for job in jobs:
        if raw_id(job) in left:
            job.reschedule(delay=0)
    return not client.hlen(processes.keys("jobs"))


@pytest.mark.parametrize("count", [200, pytest.param(5_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("to", ["newer", "older"], ids=["forward", "back"])
def test_a_rolling_deploy_costs_no_job_an_attempt(
    processes: Processes, client: Redis, seed: int, print_now: Callable[[str], None], count: int, to: str
) -> None:
    """Workers of one release are replaced one by one by those of the other, while both releases enqueue.

    From the first replacement on every release has a worker. All jobs may run once only.
    """
    dice, started_at = random.Random(seed), time.monotonic()
    away = "older" if to == "newer" else "newer"
    processes.configure(TASK_MODULES=MODULES, GRACE=GRACE, CONCURRENCY=4)
    processes.dispatcher()
    workers = {worker.pid: worker for worker in (processes.worker(DELAYQ_TEST_RELEASE=away) for _ in range(3))}
    releases = dict.fromkeys(workers, away)
    stopped: list[Command] = []
    jobs: list[Any] = []
    for drafts in batches(count, 6, dice):
        jobs += (added := enqueue_many(drafts))
        # The worker that runs this job is the next one stopped, so that each stop interrupts a job.
        held = processes.until_runs(1, added[0].id)[0]["pid"]
        command, release = workers.pop(held), releases.pop(held)
        command.send(signal.SIGTERM)
        assert command.wait() == 0, command.output[-2_000:]
        stopped.append(command)
        # Forward and back again, but never without a worker of the release that this one had.
        if release in releases.values():
            release = to if release == away else away
        worker = processes.worker(DELAYQ_TEST_RELEASE=release)
        workers[worker.pid], releases[worker.pid] = worker, release
    if count < 1_000:
        # The long form waits as a project would; a job may meet the other release several times.
        processes.until(lambda: all_ended(client, processes, jobs), what="all jobs to end")
    processes.until_empty(patience=1_800)
    assert [worker.end() for worker in workers.values()] == [0, 0, 0]
    runs = processes.runs()
    assert client.zcard(processes.keys("dead_letters")) == 0
    assert {run["id"] for run in runs} == {job.id for job in jobs} and len(jobs) == count
    assert {run["attempt"] for run in runs} == {1}
    # Only an interrupted job runs again, and it is recovered then.
    repeated = [run for run in runs if run["recovered"]]
    assert len(runs) == count + len(repeated) and len({run["id"] for run in repeated}) >= 6
    waits = sum(command.output.count("next in 1.0 s") for command in (*stopped, *workers.values()))
    assert waits
    numbers = Counter(run.get("release", "either") for run in runs)
    print_now(
        f"rolling deploy to the {to} release: {count:,} jobs, 0 lost, 0 dead; {len(repeated)} runs were cut short and "
        f"repeated, {waits:,} waited for a worker of their release; runs {dict(numbers)}; "
        f"{time.monotonic() - started_at:.0f} s"
    )
