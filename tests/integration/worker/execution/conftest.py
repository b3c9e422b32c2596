"""The fixture of the tests of execution: run a function as a task."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from django_delayq.job.outcome import Outcome
from django_delayq.task import registry
from django_delayq.task.task import Task
from django_delayq.worker.execution import run
from tests.integration.worker.execution.claims import PATIENCE, Run, claim_of


@pytest.fixture
def run_task(registered: Any) -> Iterator[Run]:
    """Run a function as a task, in one worker thread for all tasks of a test.

    `run_task(func, *args, attempts=…, **options of the job)`. Called in a thread of the test's own, it runs there.
    """
    registered()

    def run_function(
        func: Any,
        *args: Any,
        already_done: Any = None,
        retry_delay: Any = None,
        name: str = "shop.tasks.play",
        **facts: Any,
    ) -> Outcome:
        task: Task[Any, Any] = Task(func=func, name=name, already_done=already_done, retry_delay=retry_delay)
        registry._tasks[task.name] = task
        claim = claim_of(task.name, *args, **facts)
        if threading.current_thread() is not threading.main_thread():
            return run(claim)
        return worker.submit(run, claim).result(2 * PATIENCE)

    with ThreadPoolExecutor(1) as worker:
        yield run_function
