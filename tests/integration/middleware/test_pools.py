"""Middlewares in real workers: the chain is built in the process that runs the task, in every pool."""

import pytest

from django_delayq import RetryPolicy, get_job
from tests.inspection import inspection
from tests.integration.middleware import classes
from tests.sample_app import async_tasks, django_tasks, tasks
from tests.subprocesses import Processes

MODULES = ["tests.sample_app.async_tasks", "tests.sample_app.django_tasks"]


@pytest.mark.parametrize("pool", ["threads", "processes", "asyncio"])
def test_a_run_passes_through_in_every_pool(processes: Processes, pool: str) -> None:
    processes.configure(TASK_MODULES=MODULES, MIDDLEWARE=[f"{classes.__name__}.Noting"])
    processes.worker(f"--pool={pool}", "--concurrency=2")
    token = classes.request_id.set(f"of {pool}")
    try:
        good = [tasks.record.enqueue(1), async_tasks.nap.enqueue(0)]
        result = django_tasks.adescribe.enqueue()
        bad = async_tasks.fail.using(retry=RetryPolicy(max_attempts=2, base=0.01, cap=0.01)).enqueue()
    finally:
        classes.request_id.reset(token)
    processes.until_gone(good)
    processes.until_state(bad, "dead")
    of_django = get_job(result.id)
    assert of_django is not None
    processes.until_state(of_django, "done")
    notes = processes.events("middleware")
    assert {note["id"] for note in notes if note["error"] is None} == {job.id for job in (*good, of_django)}
    assert [(note["attempt"], note["error"]) for note in notes if note["id"] == bad.id] == [
        (1, "as asked"),
        (2, "as asked"),
    ]
    assert {note["request_id"] for note in notes} == {f"of {pool}"}


def test_the_hard_limit_of_a_coroutine_holds_inside_a_plain_middleware(processes: Processes) -> None:
    processes.configure(TASK_MODULES=MODULES, MIDDLEWARE=[f"{classes.__name__}.Outer"])
    worker = processes.worker("--pool=asyncio")
    once = RetryPolicy(max_attempts=1)
    job = async_tasks.nap.using(hard_timeout=0.3, retry=once).enqueue(3_600)
    processes.until_state(job, "dead")
    letter = inspection().dead_letter(bytes.fromhex(job.id[:24]))
    assert letter is not None and "hard limit of 0.3 s" in letter.attempts.last_error
    processes.until_gone([async_tasks.nap.enqueue(0)])
    assert worker.end() == 0


def test_a_worker_with_a_wrong_middleware_does_not_start(processes: Processes) -> None:
    processes.configure(MIDDLEWARE=[f"{classes.__name__}.Misnamed"])
    command = processes.start("run_worker")
    assert command.wait() != 0
    assert "method run is async; rename it arun" in command.output and "Traceback" not in command.output
