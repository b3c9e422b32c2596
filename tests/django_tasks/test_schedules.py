"""Recurring schedules of Django's own `@task`: the same API, in the store of the task's alias."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from django_delayq import RetryPolicy, get_job, get_store
from django_delayq.exceptions import InvalidSchedule
from django_delayq.job.outcome import OutcomeKind
from django_delayq.testing import DelayQ
from tests.django_tasks.compat import TaskResultStatus
from tests.django_tasks.conftest import with_options
from tests.sample_app import django_tasks
from tests.shard_apis import NINE

HOUR = timedelta(hours=1)


@pytest.fixture
def delayq() -> Iterator[DelayQ]:
    """A queue of this test, at nine on a Monday."""
    with DelayQ() as queue:
        queue.advance_to(NINE)
        yield queue


def test_a_schedule_runs_its_task_and_keeps_results(delayq: DelayQ) -> None:
    django_tasks.add.schedules.set("a", cron="0 * * * *", tz="UTC", args=(2,), kwargs={"b": 3})
    ran = delayq.advance(hours=2, run=True)
    assert [run.occurrence for run in ran] == [NINE + HOUR, NINE + 2 * HOUR]
    result = django_tasks.add.get_result(ran[0].id)
    assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, 5)
    found = django_tasks.add.schedules.get("a")
    assert found and (found.name, found.task) == ("a", django_tasks.add.module_path)
    assert [run.outcome for run in found.runs] == ["done", "done"]


def test_each_alias_has_schedules_of_its_own(delayq: DelayQ) -> None:
    second = django_tasks.echo.using(backend="second")
    django_tasks.echo.schedules.set("a", every=HOUR, args=["first"])
    second.schedules.set("a", every=HOUR, args=["second"])
    second.schedules.set("b", every=HOUR, args=["b"])
    assert [get_store(alias).schedules(0).count() for alias in ("default", "second")] == [1, 2]
    assert {each.name for each in second.schedules.iter()} == {"a", "b"}
    ran = delayq.advance(hours=1, run=True)
    assert {(run.schedule, *run.args) for run in ran} == {("a", "first"), ("a", "second"), ("b", "b")}
    now = second.schedules.get("b").run_now()
    assert now.backend == "second" and [run.id for run in delayq.run_due()] == [now.id]
    assert second.get_result(now.id).return_value == [["b"], {}]
    assert second.schedules.delete("a", "b") == 2
    assert django_tasks.echo.schedules.get("a") is not None


def test_options_of_the_alias_and_of_the_task_travel_in_the_jobs(delayq: DelayQ, tasks_settings: Any) -> None:
    retry = RetryPolicy(max_attempts=2, delays=[1])
    options = {"retry": retry, "tenant": "acme", "key": "k", "timeout": 7}
    with_options(tasks_settings, TASKS={django_tasks.fail.module_path: options})
    django_tasks.fail.using(priority=5, queue_name="mail").schedules.set("a", every=HOUR)
    delayq.run_due()
    [waiting] = delayq.enqueued
    found = get_job(waiting.id)
    assert found and found.job
    job = found.job
    assert (job.retry, job.tenant, job.key, job.timeout_us) == (retry, "acme", None, 7_000_000)
    assert (job.priority, job.queue) == (5, "mail")
    ran = delayq.advance(hours=1, minutes=1, run=True, errors="retry")
    assert [(run.attempt, run.ending) for run in ran] == [(1, OutcomeKind.FAILED), (2, OutcomeKind.FAILED)]


@pytest.mark.django_db(transaction=True)
def test_the_option_on_commit_decides_whether_schedules_wait(delayq: DelayQ, tasks_settings: Any) -> None:
    for waits in (False, True):
        with_options(tasks_settings, ON_COMMIT=waits)
        name = f"waits {waits}"
        with transaction.atomic():
            django_tasks.noop.schedules.set(name, every=HOUR)
            assert (django_tasks.noop.schedules.get(name) is None) == waits
        assert django_tasks.noop.schedules.get(name) is not None


@pytest.mark.parametrize("run_after", [NINE + HOUR, HOUR])
def test_a_time_of_a_single_job_is_refused(delayq: DelayQ, run_after: Any) -> None:
    with pytest.raises(InvalidSchedule, match="leave out delay, at and run_after"):
        django_tasks.noop.using(run_after=run_after).schedules.set("a", every=HOUR)
    assert django_tasks.noop.schedules.get("a") is None


def test_arguments_that_are_no_json_are_refused(delayq: DelayQ) -> None:
    with pytest.raises(TypeError):
        django_tasks.echo.schedules.set("a", every=HOUR, args=[object()])
    assert django_tasks.echo.schedules.get("a") is None
