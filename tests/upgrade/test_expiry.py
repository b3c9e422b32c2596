"""Expiry beside an older process: it runs the job as if there were none, and reads a result that says expired."""

import json
from collections.abc import Callable
from pathlib import Path
from time import time

from django_delayq.job.job import State
from django_delayq.job.result import Result
from tests.one_by_one import one_by_one
from tests.sample_app import tasks
from tests.subprocesses import Processes
from tests.upgrade.test_claim_records import older

READ_RESULT = """
import json, sys
from django_delayq.job.result import Result
print(json.dumps(Result.unpack(sys.stdin.buffer.read()) is None))
"""


def test_an_older_worker_runs_an_expired_job(processes: Processes, older_package: Path) -> None:
    operations = one_by_one()
    operations.pause("mail", by="a test")
    task = tasks.record.using(queue="mail", key="k")
    late = task.using(expires=0.05, on_expiry="dead").enqueue("late")
    assert late.job is not None and late.job.expiry is not None
    moment = late.job.expiry.moment_us / 1e6
    processes.until(lambda: time() > moment, what="the expiry")
    processes.until_known(older(processes, older_package, "run_worker"))
    operations.resume("mail")
    processes.until_gone([late])
    assert [run["args"] for run in processes.runs()] == [["late"]]
    assert task.enqueue("next").created


def test_the_older_reader_takes_an_expired_job_for_one_without_a_result(
    in_older_package: Callable[[str, bytes], str],
) -> None:
    expired = Result(state=State.EXPIRED, ended_us=1_800_000_000_000_000)
    assert json.loads(in_older_package(READ_RESULT, expired.pack()))
