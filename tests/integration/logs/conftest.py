"""A module of tasks that fail, and workers that run them until they are dead."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from tests.subprocesses import Command, Processes

MODULE = """
import logging, os
from django_delayq import RetryPolicy, delayed_task

twice = RetryPolicy(max_attempts=2, base=0.01, cap=0.01)

class ShopError(Exception):
    def __reduce__(self): raise TypeError("not picklable")

@delayed_task(retry=twice, queue="mail")
def fail(number):
    visible = "seen-by-all"
    logging.getLogger("shop").info("in the task %d", number)
    raise ShopError("no money\\nleft")

@delayed_task(retry=twice, queue="mail")
async def fail_async(number):
    visible = "seen-by-all"
    logging.getLogger("shop").info("in the task %d", number)
    raise ShopError("no money\\nleft")

@delayed_task(retry=twice, sensitive=("card",))
def charge(user, card):
    derived = [card]
    try:
        check(derived)
    except KeyError as error:
        raise ValueError("no money") from error

def check(derived):
    inner = dict(number=derived)
    raise KeyError("bank")

@delayed_task(retry=twice, sensitive=True)
async def charge_async(user, card):
    derived = [card]
    try:
        check(derived)
    except KeyError:
        raise ValueError("no money")

@delayed_task(retry=twice, queue="mail")
def crash():
    os._exit(9)

@delayed_task
def log_an_error():
    logging.getLogger("shop").error("the shop is closed")
"""


@pytest.fixture
def shop(processes: Processes, task_module: Callable[[str, str], ModuleType]) -> ModuleType:
    """Tasks that fail."""
    made = task_module("shop_tasks", MODULE)
    processes.configure(TASK_MODULES=["shop_tasks", "tests.sample_app.django_tasks"])
    return made


@pytest.fixture
def run_until_dead(processes: Processes) -> Callable[..., Command]:
    """Run jobs in a worker with such a pool until they are dead, and end it: `run_until_dead("threads", job)`."""

    def run(pool: str, *jobs: Any) -> Command:
        worker = processes.worker(f"--pool={pool}", "--concurrency=2")
        for job in jobs:
            processes.until_state(job, "dead")
        assert worker.end() == 0
        return worker

    return run
