"""Runs, as the tests of run_worker read them."""

from typing import Any

from django_delayq import get_store
from django_delayq.job.attempts import AttemptHistory
from tests.subprocesses import Processes


def attempts_of(job: Any) -> AttemptHistory:
    raw_id = bytes.fromhex(job.id.split("-")[0])
    return get_store().lookup(0).find(raw_id, queue=job.job.queue).attempts


def values(processes: Processes) -> list[Any]:
    return [run["args"][0] for run in processes.runs()]
