"""A busy shard: its backlog does not delay jobs of another shard of the same worker."""

from django_delayq import enqueue_many
from tests.sample_app import tasks
from tests.subprocesses import Processes

#: Jobs of 3 ms in the busy shard: 4 s of work for two slots.
BACKLOG = 2_500
#: How many of them may begin before a job of the other shard: a first batch or two, and more on a busy machine.
#: With a fault, all of them begin first.
FIRST = BACKLOG // 2


def test_a_job_of_a_quiet_shard_does_not_wait_for_the_backlog_of_a_busy_one(processes: Processes) -> None:
    processes.configure(SHARDS=2, CONCURRENCY=2)
    # A key chooses the shard.
    key = next(f"{n}" for n in range(100) if tasks.record.using(key=f"{n}").job("probe")._shard == 1)
    busy = [job for job in (tasks.nap.job(0.003) for _ in range(3 * BACKLOG)) if job._shard == 0][:BACKLOG]
    assert len(busy) == BACKLOG
    enqueue_many(busy)
    processes.dispatcher()
    processes.worker()
    processes.until_runs(200)
    urgent = tasks.record.using(key=key, priority=100).enqueue("urgent")
    assert urgent.id.endswith("-1")
    before = len(processes.runs())
    processes.until_runs(1, urgent.id)
    ids = [run["id"] for run in processes.runs()]
    assert ids.index(urgent.id) - before < FIRST
