"""Lost writes: a server that lost its last writes, as after a failover to a replica that lagged behind.

The tests truncate the append-only file. A lost claim or acknowledgement repeats a job, and the old claim is refused. A
lost enqueue is a lost job, which only Redis can prevent.
"""

import os
from collections.abc import Callable
from pathlib import Path

from django_delayq.testing.local_redis import LocalRedisServer
from tests.sample_app import tasks
from tests.subprocesses import Processes

WRITING = {"appendonly": "yes", "appendfsync": "always", "auto-aof-rewrite-percentage": "0"}


def test_lost_steps_are_repeated_and_old_claim_is_refused(
    processes: Processes, start_redis: Callable[..., LocalRedisServer], tmp_path: Path
) -> None:
    server = start_redis(options=WRITING)
    [file] = [path for path in server.folder.rglob("appendonly.aof*") if path.name.endswith(("incr.aof", "ly.aof"))]
    processes.configure(REDIS=server.url, LEASE=2)
    dispatcher, worker = processes.dispatcher(), processes.worker()
    gates = [tmp_path / "first", tmp_path / "second"]
    first = tasks.wait_for.enqueue(str(gates[0]))
    processes.until_runs(1)
    second = tasks.wait_for.after(hours=1).enqueue(str(gates[1]))
    remembered = file.stat().st_size

    # The file loses three facts: the first job is done, the second is claimed, a third exists.
    gates[0].touch()
    processes.until_gone([first])
    assert second.reschedule(delay=0)
    processes.until_runs(1, second.id)
    third = tasks.record.after(hours=1).enqueue()
    server.kill()
    assert file.stat().st_size > remembered
    os.truncate(file, remembered)
    server.start()

    assert processes.until_state(second, "scheduled")
    assert third.refresh().state == "gone"
    assert second.reschedule(delay=0)
    processes.until_runs(2, second.id)
    processes.until(lambda: f"Job {second.id}: lease lost" in worker.output, what="the lost lease to be logged")
    gates[1].touch()
    processes.until_gone([first, second])
    refused = f"Job {second.id}: lease lost, its outcome (succeeded) was refused"
    processes.until(lambda: refused in worker.output, what="the refusal")
    assert worker.output.count(f"Job {second.id} of 'tests.sample_app.tasks.wait_for' in 'default' done") == 1
    # The file kept the first claim, so it counts as an attempt. It lost the second claim and its count.
    assert [run["attempt"] for run in processes.runs(first.id)] == [1, 2]
    assert [run["attempt"] for run in processes.runs(second.id)] == [1, 1]
    assert [command.end() for command in (dispatcher, worker)] == [0, 0]
    assert not dispatcher.failures + worker.failures
