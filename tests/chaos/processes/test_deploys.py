"""Deploys: a producer of a newer release and a worker of an older one. Jobs wait for a worker that can run them.

A job that does not fit is retried after 30 s, and the attempt counts. The tests reschedule it instead of waiting.
"""

from typing import Any

from redis import Redis

from django_delayq.job.attempts import AttemptHistory
from tests.inspection import inspection
from tests.sample_app import tasks, two_releases
from tests.subprocesses import Command, Processes

#: Seconds until a job that does not fit is retried.
WAIT = 30


def start_older_release(processes: Processes) -> Command:
    processes.configure(TASK_MODULES=("tests.sample_app.two_releases",))
    processes.dispatcher()
    return processes.worker(DELAYQ_TEST_RELEASE="older")


def enqueue_in_newer_format(client: Redis, processes: Processes) -> Any:
    """Enqueue a job whose body only a newer release can read."""
    job = tasks.record.after(hours=1).enqueue("newer")
    rewrite(client, processes, job, 2)
    assert job.reschedule(delay=0)
    return job


def rewrite(client: Redis, processes: Processes, job: Any, version: int) -> None:
    """Overwrite the format version of a body."""
    body = client.hget(processes.keys("jobs"), raw_id(job))
    client.hset(processes.keys("jobs"), raw_id(job), bytes([version]) + body[1:])


def raw_id(job: Any) -> bytes:
    return bytes.fromhex(job.id.split("-")[0])


def wait_for_retry(client: Redis, processes: Processes, job: Any, ended: int) -> None:
    """Wait until that many attempts are counted and the job is scheduled again in about WAIT seconds."""

    def waits() -> int:
        record = client.hget(processes.keys("attempts"), raw_id(job))
        waiting = client.zrange(processes.keys.scheduled("default"), 0, -1, withscores=True)
        due = [score for member, score in waiting if member.startswith(raw_id(job))]
        return int(due[0]) if due and AttemptHistory.unpack(record).ended == ended else 0

    due_us = processes.until(waits, what=f"retry {ended} of {job.id}")
    seconds, us = client.time()
    left = due_us / 1_000_000 - seconds - us / 1_000_000
    # Part of WAIT has passed during the wait above.
    assert 0 < left <= WAIT
    [entry] = AttemptHistory.unpack(client.hget(processes.keys("attempts"), raw_id(job))).history[-1:]
    # `started_us` is by the worker's own clock.
    assert (WAIT - 1) * 1_000_000 < due_us - entry["started_us"] < (WAIT + 20) * 1_000_000


def test_jobs_of_newer_release_wait_for_newer_worker(processes: Processes, client: Redis) -> None:
    older = start_older_release(processes)
    unknown, unfit = two_releases.brand_new.enqueue(1), two_releases.greet.enqueue("Ada", "Countess")
    newer = enqueue_in_newer_format(client, processes)
    fits = tasks.record.enqueue()
    for job in (unknown, unfit, newer):
        wait_for_retry(client, processes, job, 1)
    processes.until_gone([fits])
    assert [run["id"] for run in processes.runs()] == [fits.id]
    assert older.end() == 0
    assert "Traceback" not in older.output
    processes.worker(DELAYQ_TEST_RELEASE="newer")
    # A newer release could read the body. This one can after the version is restored.
    rewrite(client, processes, newer, 1)
    for job in (unknown, unfit, newer):
        assert job.reschedule(delay=0)
    processes.until_gone([unknown, unfit, newer])
    runs = {run["id"]: (run["attempt"], run["recovered"], run["args"]) for run in processes.runs()}
    assert runs[unknown.id] == (2, False, [1])
    assert runs[unfit.id] == (2, False, ["Ada", "Countess"])
    assert runs[newer.id] == (2, False, ["newer"])
    assert len(processes.runs()) == 4


def test_jobs_that_no_worker_can_run_become_dead_letters_with_their_reason(processes: Processes, client: Redis) -> None:
    worker = start_older_release(processes)
    unknown = two_releases.brand_new.using(retry=two_releases.TWICE).enqueue(1)
    unfit = two_releases.greet.using(retry=two_releases.TWICE).enqueue("Ada", "Countess")
    # A body that cannot be read has the default retry policy.
    newer = enqueue_in_newer_format(client, processes)
    for job, attempts in ((unknown, 2), (unfit, 2), (newer, 5)):
        for ended in range(1, attempts):
            wait_for_retry(client, processes, job, ended)
            assert job.reschedule(delay=0)
        processes.until(lambda job=job: client.zscore(processes.keys("dead_letters"), raw_id(job)), what="dead letter")
        dead = inspection().dead_letter(raw_id(job))
        assert dead is not None and dead.attempts.ended == attempts
        expected = {unknown.id: "unknown task", unfit.id: "arguments do not fit", newer.id: "newer version"}
        assert [entry["ending"] for entry in dead.attempts.history] == [expected[job.id]] * attempts
    assert processes.runs() == []
    assert worker.end() == 0
    assert "Traceback" not in worker.output
