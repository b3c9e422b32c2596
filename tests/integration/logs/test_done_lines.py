"""Lines of done jobs in a worker's terminal: few jobs have a line each, of many the rest is counted, and all add up."""

import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from django_delayq import enqueue_many
from tests.subprocesses import Command, Processes

MODULE = """
import time
from django_delayq import RetryPolicy, delayed_task

@delayed_task
def sell(number): pass

@delayed_task
async def sell_async(number): pass

@delayed_task
def rest(): time.sleep(1.1)

@delayed_task(retry=RetryPolicy(max_attempts=2, base=0.01, cap=0.01))
def fail(): raise ValueError("no money")
"""
RECEIVER = """
from django_delayq.signals import job_finished

def receive(job_id, **_): print("received", job_id)

job_finished.connect(receive)
"""
#: A LOGGING that prints the records, as most projects have it.
LOGGING = """
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(levelname)s %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": "INFO"},
}
"""
MANY = 400


@pytest.fixture
def shop(processes: Processes, task_module: Callable[[str, str], ModuleType], request: Any) -> ModuleType:
    """Tasks that do little."""
    return task_module("shop_tasks", MODULE + getattr(request, "param", ""))


def own_lines(worker: Command) -> list[str]:
    """Return the ids of the done jobs that have their own line."""
    return re.findall(r"Job (\S+) of .* done in ", worker.output)


def sums(worker: Command) -> list[int]:
    """Return the numbers of the lines that count jobs."""
    return [int(each.replace(",", "")) for each in re.findall(r"INFO ([\d,]+) more jobs? done in the", worker.output)]


def sell(shop: ModuleType, count: int, *, name: str = "sell") -> list[str]:
    """Enqueue so many jobs, and return their ids."""
    return [job.id for job in enqueue_many(getattr(shop, name).job(number) for number in range(count))]


def drain(processes: Processes, *options: Any) -> Command:
    """Run all jobs in a worker that ends after the last."""
    worker = processes.worker("--drain", *options)
    assert worker.wait() == 0
    return worker


def run_until_dead(processes: Processes, job: Any, *options: Any) -> Command:
    """Run all jobs in a worker until this one is dead, and end it. Draining would not wait for its next attempt."""
    processes.dispatcher()
    worker = processes.worker(*options)
    processes.until_state(job, "dead")
    processes.until_empty()
    assert worker.end() == 0
    return worker


@pytest.mark.parametrize("pool", ["threads", "processes", "asyncio"])
def test_few_jobs_have_a_line_each(processes: Processes, shop: ModuleType, pool: str) -> None:
    ids = sell(shop, 10, name="sell_async" if pool == "asyncio" else "sell")
    worker = drain(processes, f"--pool={pool}")
    assert sorted(own_lines(worker)) == sorted(ids)
    assert not sums(worker)


@pytest.mark.parametrize("pool", ["threads", "processes", "asyncio"])
def test_lines_and_sums_add_up_to_the_number_of_jobs(processes: Processes, shop: ModuleType, pool: str) -> None:
    """The worker ends within the second of its last jobs, so their sum is printed at its end."""
    ids = sell(shop, MANY, name="sell_async" if pool == "asyncio" else "sell")
    worker = drain(processes, f"--pool={pool}")
    lines = own_lines(worker)
    assert set(lines) <= set(ids) and len(lines) == len(set(lines))
    assert sums(worker) and len(lines) + sum(sums(worker)) == MANY


def test_the_last_sum_is_printed_while_the_worker_is_idle(processes: Processes, shop: ModuleType) -> None:
    worker = processes.worker()
    for round_number in (1, 2):
        sell(shop, MANY)
        processes.until(
            lambda expected=round_number * MANY: len(own_lines(worker)) + sum(sums(worker)) >= expected,  # type: ignore[misc]
            what="the sum of all jobs",
        )
    assert worker.end() == 0
    assert sums(worker) and len(own_lines(worker)) + sum(sums(worker)) == 2 * MANY


def test_workers_of_several_shards_print_one_sum(processes: Processes, shop: ModuleType) -> None:
    processes.configure(SHARDS=2)
    sell(shop, MANY)
    worker = drain(processes)
    assert sums(worker) and len(own_lines(worker)) + sum(sums(worker)) == MANY


def test_failures_and_slow_jobs_among_many_have_their_lines(processes: Processes, shop: ModuleType) -> None:
    sell(shop, MANY)
    slow, failing = shop.rest.enqueue(), shop.fail.enqueue()
    sell(shop, MANY)
    worker = run_until_dead(processes, failing)
    assert re.search(rf"Job {slow.id} of 'shop_tasks.rest' in 'default' done in [1-9]", worker.output)
    about = re.findall(rf" (\w+) Job {failing.id} ", worker.output)
    assert about == ["WARNING", "ERROR"]
    assert len(own_lines(worker)) + sum(sums(worker)) == 2 * MANY + 1


@pytest.mark.parametrize("shop", [RECEIVER], indirect=True, ids=["with a receiver"])
def test_a_receiver_gets_each_job_once(processes: Processes, shop: ModuleType) -> None:
    ids = sell(shop, MANY)
    worker = drain(processes)
    assert sorted(re.findall(r"received (\S+)", worker.output)) == sorted(ids)
    assert sums(worker) and len(own_lines(worker)) + sum(sums(worker)) == MANY


def test_a_handler_of_the_project_gets_a_line_for_each_job(processes: Processes, shop: ModuleType) -> None:
    with open(processes.folder / "process_settings.py", "a") as project:
        project.write(LOGGING)
    ids = sell(shop, MANY)
    worker = drain(processes)
    assert sorted(own_lines(worker)) == sorted(ids)
    assert not sums(worker)


def test_verbosity_2_prints_a_line_for_each_job(processes: Processes, shop: ModuleType) -> None:
    ids = sell(shop, MANY)
    worker = drain(processes, "--verbosity=2")
    assert sorted(own_lines(worker)) == sorted(ids)
    assert not sums(worker)


def test_verbosity_0_prints_errors_alone(processes: Processes, shop: ModuleType) -> None:
    sell(shop, MANY)
    failing = shop.fail.enqueue()
    worker = run_until_dead(processes, failing, "--verbosity=0")
    assert not own_lines(worker) and not sums(worker)
    assert re.findall(r" (\w+) Job (\S+) ", worker.output) == [("ERROR", failing.id)]
