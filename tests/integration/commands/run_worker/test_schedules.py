"""Recurring schedules in real processes: who plants their jobs, and what the code of a job sees."""

from collections.abc import Callable
from time import time_ns
from types import ModuleType
from typing import Any

import pytest

from django_delayq import get_store, runtime
from django_delayq.conf.settings import drop_config
from django_delayq.testing.fake_clock import FakeClock
from tests.sample_app.tasks import record
from tests.subprocesses import Processes

HOUR = 3_600
MODULE = """
from django_delayq import current_job, delayed_task
from tests.sample_app.tasks import note

@delayed_task
def look():
    job = current_job()
    note("look", schedule=job.schedule, occurrence=job.occurrence.timestamp(), missed=job.missed)

@delayed_task
async def alook():
    look.func()
"""


def set_hours_ago(task: Any, hours: int, **options: Any) -> None:
    """Set a schedule as if it was that long ago, and nobody had planted since."""
    drop_config()
    with runtime.override(clock=FakeClock(time_ns() // 1_000 - hours * HOUR * 1_000_000)):
        task.schedules.set("a", every=HOUR, **options)
    drop_config()


def hours(processes: Processes) -> int:
    """Return how many hours have begun since the epoch, by the time of Redis."""
    with processes.client() as client:
        return int(client.time()[0]) // HOUR


def test_drain_plants_and_runs_what_is_due(processes: Processes) -> None:
    begun = hours(processes)
    set_hours_ago(record, 5, args=["late"])
    for _ in range(2):
        assert processes.worker("--drain").wait() == 0
        runs = [run["args"] for run in processes.runs()]
        # One more for each hour that has begun meanwhile.
        assert 1 <= len(runs) <= 1 + hours(processes) - begun
        assert runs == [["late"]] * len(runs)
    found = record.schedules.get("a")
    assert found and found.last and found.last.outcome == "done"


def test_drain_catches_up_as_the_schedule_says(processes: Processes) -> None:
    set_hours_ago(record, 5, catch_up="all", overlap="allow")
    assert processes.worker("--drain", "--concurrency", 1).wait() == 0
    # A sixth, if an hour has begun meanwhile.
    assert len(processes.runs()) in (5, 6)


@pytest.mark.parametrize("with_dispatcher", [False, True])
def test_jobs_are_planted_with_and_without_a_dispatcher(processes: Processes, with_dispatcher: bool) -> None:
    if with_dispatcher:
        processes.dispatcher()
    processes.worker()
    record.schedules.set("a", every=1)
    runs = processes.until_runs(3)
    occurrences = [run["due"] for run in runs]
    # One may be missed, if this machine stands still for a second.
    assert occurrences == sorted(set(occurrences)) == [*map(round, occurrences)]
    record.schedules.delete("a")
    processes.until_empty()
    assert get_store().schedules(0).count() == 0


@pytest.mark.parametrize("pool", ["threads", "processes", "asyncio"])
def test_the_code_of_a_job_sees_its_occurrence_in_each_pool(
    processes: Processes, task_module: Callable[[str, str], ModuleType], pool: str
) -> None:
    tasks = task_module("look_tasks", MODULE)
    set_hours_ago(tasks.alook if pool == "asyncio" else tasks.look, 3, catch_up="all", overlap="allow")
    assert processes.worker("--drain", "--pool", pool).wait() == 0
    found = sorted((event["occurrence"], event["missed"]) for event in processes.events("look"))
    # A fourth, if an hour has begun meanwhile.
    assert len(found) in (3, 4)
    assert [missed for _, missed in found] == [*reversed(range(len(found)))]
    assert [occurrence for occurrence, _ in found] == [found[0][0] + HOUR * number for number in range(len(found))]
    assert {event["schedule"] for event in processes.events("look")} == {"a"}
