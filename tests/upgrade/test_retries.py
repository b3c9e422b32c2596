"""Retry rules and what is no attempt, beside processes of the older release: they ignore both, and no job is lost."""

from pathlib import Path

import pytest
from redis import Redis

from django_delayq import RetryPolicy, get_store
from django_delayq.job.attempts import AttemptHistory
from tests.sample_app import tasks
from tests.subprocesses import Processes
from tests.upgrade.test_claim_records import older

QUICK = {"base": 0.01, "cap": 0.02}


def test_an_older_worker_tries_again_what_the_rules_would_not(processes: Processes, older_package: Path) -> None:
    older(processes, older_package, "run_dispatcher")
    processes.until_known(older(processes, older_package, "run_worker"))
    jobs = [
        tasks.fail.using(retry=RetryPolicy(max_attempts=3, **rules, **QUICK)).enqueue()
        for rules in ({"dead_on": ValueError}, {"retry_on": OSError}, {"delays": [3_600]})
    ]
    for job in jobs:
        processes.until_state(job, "dead")
        assert [run["attempt"] for run in processes.runs(job.id)] == [1, 2, 3]
    endless = tasks.fail.using(retry=RetryPolicy(max_attempts=None, **QUICK)).enqueue(5)
    processes.until_gone([endless])
    assert len(processes.runs(endless.id)) == 6


@pytest.mark.parametrize("fails", [0, 1])
def test_an_older_worker_runs_a_job_that_was_snoozed_interrupted_and_waited(
    processes: Processes, client: Redis, older_package: Path, fails: int
) -> None:
    job = tasks.fail.enqueue(fails)
    raw_id = bytes.fromhex(job.id.split("-")[0])
    record = AttemptHistory().snoozed().cut_short().waited("unknown task", now_us=10**15)
    client.hset(processes.keys("attempts"), raw_id, record.pack())
    older(processes, older_package, "run_dispatcher")
    worker = older(processes, older_package, "run_worker")
    processes.until_gone([job])
    assert [run["attempt"] for run in processes.runs()] == list(range(1, fails + 2))
    assert worker.end() == 0
    assert get_store().lookup(0).find(raw_id).ended
