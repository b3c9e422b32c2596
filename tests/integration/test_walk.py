"""The walk: one delayed job from enqueue to done through real processes, with a check of each of its places."""

from pathlib import Path
from typing import Any

from redis import Redis

from django_delayq import get_job, get_store
from django_delayq.store.queries.job_pages import JobRow
from tests.inspection import inspection
from tests.one_by_one import one_by_one
from tests.sample_app import tasks
from tests.subprocesses import Processes


def raw(job: Any) -> bytes:
    return bytes.fromhex(job.id.split("-")[0])


def found(job: Any) -> JobRow:
    return get_store().lookup(0).find(raw(job), queue="mail")


def places(client: Redis, processes: Processes, job: Any) -> list[str]:
    """Return every place that holds the job, read from Redis without the store's own code."""
    keys, member = processes.keys, raw(job)
    zsets = {
        "scheduled": keys.scheduled("mail"),
        "ready": keys.ready("mail"),
        "claimed": keys("leases"),
        "dead": keys("dead_letters"),
    }
    return [name for name, key in zsets.items() for entry in client.zrange(key, 0, -1) if entry.startswith(member)]


def test_a_job_is_scheduled_ready_claimed_and_done(processes: Processes, client: Redis, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = tasks.wait_for.using(queue="mail", delay=3_600).enqueue(str(gate))
    assert job.state == "scheduled"
    assert places(client, processes, job) == ["scheduled"]
    assert job.reschedule(delay=0.5)
    [(_, due_us)] = client.zrange(processes.keys.scheduled("mail"), 0, -1, withscores=True)

    dispatcher = processes.dispatcher()
    processes.until_state(job, "ready")
    assert places(client, processes, job) == ["ready"]
    assert not processes.events()

    worker = processes.worker("--queues", "mail")
    [run] = processes.until_runs(1)
    assert (run["attempt"], run["recovered"], run["pid"]) == (1, False, worker.pid)
    assert run["at"] * 1_000_000 >= due_us
    assert job.refresh().state == "claimed"
    assert places(client, processes, job) == ["claimed"]
    claimed = found(job)
    assert claimed.claimed_us is not None
    assert claimed.claimed_us >= due_us
    assert (claimed.attempts.ended, claimed.job and claimed.job.queue) == (0, "mail")
    assert not job.cancel()

    gate.touch()
    processes.until_gone([job])
    assert places(client, processes, job) == []
    assert get_job(job.id) is None
    assert [event["word"] for event in processes.events()] == ["run", "end"]
    assert (worker.end(), dispatcher.end()) == (0, 0)
    # Nothing of the job is left, only records of queues, of processes and of the next step.
    left = {key.decode().split(":")[2] for key in client.scan_iter("delayq:*")}
    registries = {"queues", "workers", "dispatchers", "worker_names", "process_reports", "exchanges", "metrics"}
    assert left <= registries | {
        "queues_version",
        "next_promotion",
        "no_reclaim_before",
        "shards",
        "notify",
        "enqueued",
        "totals",
        "finished",
        "releases",
        "notify_dispatcher",
    }


def test_a_failing_job_is_retried_dies_is_requeued_and_done(
    processes: Processes, client: Redis, tmp_path: Path
) -> None:
    cure = tmp_path / "cure"
    processes.dispatcher()
    worker = processes.worker()
    job = tasks.fail_until.using(queue="mail", delay=0.1).enqueue(str(cure))

    processes.until_state(job, "dead")
    assert places(client, processes, job) == ["dead"]
    assert [run["attempt"] for run in processes.runs()] == [1, 2, 3]
    assert {run["recovered"] for run in processes.runs()} == {False}
    dead = inspection().dead_letter(raw(job))
    assert dead is not None
    assert dead.attempts.ended == 3
    assert [entry["ending"] for entry in dead.attempts.history] == ["failed"] * 3
    assert {entry["worker"].rsplit(":", 1)[1] for entry in dead.attempts.history} == {str(worker.pid)}
    assert "ValueError: as asked" in dead.attempts.last_error

    cure.touch()
    assert one_by_one().requeue(raw(job), died_us=dead.moment_us) is not None
    processes.until_gone([job])
    assert places(client, processes, job) == []
    # Attempts start at 1 again, under the same id.
    assert [run["attempt"] for run in processes.runs(job.id)] == [1, 2, 3, 1]
    assert one_by_one().requeue(raw(job), died_us=dead.moment_us) is None
    assert worker.end() == 0
