"""Hard limits: a suspect that outlasts its limit is killed, and the attempt counts; other jobs continue."""

import os
from pathlib import Path

import pytest
from redis import Redis

from django_delayq import RetryPolicy
from tests.inspection import inspection
from tests.sample_app import tasks
from tests.subprocesses import Processes


def test_a_suspect_beyond_its_hard_limit_is_killed_and_counted(processes: Processes, client: Redis) -> None:
    # Longer than a process takes to start on a busy machine.
    endless = tasks.wait_for.using(hard_timeout=3, retry=RetryPolicy(max_attempts=2))
    killed = processes.worker()
    job = endless.enqueue("/nonexistent")
    processes.until_runs(1)
    killed.kill()
    # The lease of the dead worker expires at once.
    [lease] = client.zrange(processes.keys("leases"), 0, -1)
    client.zadd(processes.keys("leases"), {lease: 1})
    processes.dispatcher()
    worker = processes.worker()
    _, suspect = processes.until_runs(2)
    assert suspect["pid"] != worker.pid
    processes.until_gone([tasks.record.enqueue()])
    os.kill(suspect["pid"], 0)
    processes.until_state(job, "dead")
    with pytest.raises(ProcessLookupError):
        os.kill(suspect["pid"], 0)
    letter = inspection().dead_letter(bytes.fromhex(job.id.split("-")[0]))
    assert letter is not None
    assert (letter.attempts.ended, letter.attempts.history[-1]["ending"]) == (2, "crashed")
    assert "ran longer than its hard limit of 3 s" in letter.attempts.last_error
    assert worker.end() == 0
    assert [event["word"] for event in processes.events()] == ["run", "run", "run"]


def test_a_worker_ends_when_all_its_threads_are_beyond_their_limits(processes: Processes, gate: Path) -> None:
    processes.configure(LEASE=1)
    worker = processes.worker("--concurrency", 2)
    stuck = tasks.wait_for.using(hard_timeout=0.2)
    stuck.enqueue(str(gate))
    processes.until_runs(1)
    other = tasks.record.enqueue("beside it")
    processes.until_gone([other])
    assert worker.running
    stuck.enqueue(str(gate))
    assert worker.wait() == 1
    assert "jobs beyond their hard limits keep all others from going on" in worker.output
