"""Django's own tasks in tests: their jobs are listed, run and asserted like all others."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from django_delayq import RetryLater, Snooze, current_job, get_job, get_store
from django_delayq.job.progress import Progress
from django_delayq.testing import DelayQ
from tests.django_tasks.compat import TaskResultStatus, task
from tests.testing_helpers.tasks import send_reminder

BACKEND = "django_delayq.backend.DelayQBackend"


@pytest.fixture(autouse=True)
def tasks_settings(settings: Any) -> None:
    """Two aliases with this backend; the second names a Redis that does not exist."""
    settings.TASKS = {
        "default": {"BACKEND": BACKEND, "QUEUES": []},
        "second": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": {"REDIS": "redis://127.0.0.1:1/0", "PREFIX": "real"}},
    }


def stop_itself() -> None:
    """Report progress, stop the own job, and fail."""
    job = current_job()
    assert job is not None
    job.progress(0.5, "half")
    handle = get_job(job.id)
    assert handle is not None and handle.progress == Progress(0.5, "half")
    assert handle.stop() and job.should_stop
    raise ValueError("not shown")


def double(number: int) -> int:
    """Return the number times two."""
    return 2 * number


def fail() -> None:
    """Fail."""
    raise ValueError("as asked")


def pay(attempt_of_success: int, how: str) -> int:
    """Ask for another run until the bank answers; return the number of this attempt."""
    job = current_job()
    assert job is not None
    asked.append(job.attempt)
    if len(asked) == attempt_of_success:
        return job.attempt
    if how == "snooze":
        raise Snooze(minutes=5)
    try:
        raise ConnectionError("the bank does not answer")
    except ConnectionError:
        raise RetryLater(60)  # noqa: B904


#: The attempts of `pay`.
asked: list[int] = []


async def triple(number: int) -> int:
    """Return the number times three."""
    return 3 * number


def test_a_job_of_djangos_task_is_listed_and_run(delayq: DelayQ) -> None:
    made = task(priority=5, queue_name="sums")(double)
    result = made.using(run_after=timezone.now() + timedelta(minutes=10)).enqueue(4)
    job = delayq.assert_enqueued(made, args=[4], due_in=600, queue="sums", priority=5)
    assert job.id == result.id
    assert delayq.advance(minutes=9, run=True) == []
    [ran] = delayq.advance(minutes=1, run=True)
    assert (ran.args, ran.ending) == ([4], "succeeded")
    result.refresh()
    assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, 8)


def test_an_exception_is_raised_and_the_result_has_failed(delayq: DelayQ) -> None:
    result = task(fail).enqueue()
    with pytest.raises(ValueError, match="as asked"):
        delayq.run_due()
    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    assert result.errors[0].exception_class is ValueError
    assert [job.id for job in delayq.dead] == [result.id]


def test_a_snooze_is_no_attempt(delayq: DelayQ) -> None:
    asked.clear()
    result = task(pay).enqueue(3, "snooze")
    [first] = delayq.run_due()
    assert (first.ending, first.attempt) == ("snoozed", 1)
    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.READY, 0)
    assert delayq.advance(minutes=4, run=True) == []
    job = get_job(result.id)
    assert job is not None
    assert [run.ending for run in delayq.advance(minutes=1, run=True)] == ["snoozed"]
    assert job.refresh().snoozes == 2
    assert [run.ending for run in delayq.advance(minutes=5, run=True)] == ["succeeded"]
    result.refresh()
    assert (result.status, result.return_value, result.attempts) == (TaskResultStatus.SUCCESSFUL, 1, 1)
    assert (asked, result.errors) == ([1, 1, 1], [])


def test_a_request_for_another_attempt_counts_and_its_cause_is_the_error(delayq: DelayQ) -> None:
    asked.clear()
    done = task(pay).enqueue(2, "retry")
    delayq.drain()
    done.refresh()
    assert (done.status, done.return_value, done.attempts) == (TaskResultStatus.SUCCESSFUL, 2, 2)
    failed = task(pay).enqueue(99, "retry")
    # By default, a task of Django's has three attempts.
    assert [run.ending for run in delayq.drain()] == ["retry requested"] * 3
    failed.refresh()
    assert (failed.status, failed.attempts) == (TaskResultStatus.FAILED, 3)
    for error in (*done.errors, *failed.errors):
        assert error.exception_class is ConnectionError
        assert error.traceback.endswith("ConnectionError: the bank does not answer\n")


def test_coroutine_functions_and_eager_mode_work(delayq: DelayQ) -> None:
    made = task(triple)
    with delayq.eager():
        result = made.enqueue(3)
    result.refresh()
    assert result.return_value == 9


def test_jobs_of_both_kinds_of_task_are_in_one_queue(delayq: DelayQ) -> None:
    made = task(double)
    made.enqueue(1)
    send_reminder.enqueue(2)
    assert [job.task.rpartition(".")[2] for job in delayq.enqueued] == ["send_reminder", "double"]
    assert len(delayq.drain()) == 2


def test_a_store_of_another_alias_is_private_too(delayq: DelayQ) -> None:
    made = task(backend="second")(double)
    result = made.using(run_after=timezone.now() + timedelta(hours=1)).enqueue(1)
    assert get_store("second").config.prefix == f"{get_store().config.prefix}-second"
    delayq.assert_enqueued(made, args=[1], due_in=3600)
    [ran] = delayq.drain()
    assert ran.id == result.id
    result.refresh()
    assert result.return_value == 2


def test_no_key_of_an_alias_is_left(delayq: DelayQ) -> None:
    client = get_store().shards[0].client
    before = set(client.keys("*"))
    with DelayQ() as inner:
        made = task(backend="second")(double)
        made.enqueue(1)
        inner.drain()
        made.enqueue(2)
    assert set(client.keys("*")) == before


@pytest.mark.django_db
def test_a_job_of_djangos_task_waits_for_no_transaction(delayq: DelayQ) -> None:
    from django.db import transaction

    made = task(double)
    with transaction.atomic():
        made.enqueue(1)
        delayq.assert_enqueued(made)


def test_a_stopped_job_has_failed_as_cancelled_and_is_no_dead_letter(delayq: DelayQ) -> None:
    result = task(stop_itself).enqueue()
    [ran] = delayq.run_due()
    assert (ran.ending, ran.progress) == ("stopped", [Progress(0.5, "half")])
    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    assert [error.exception_class.__name__ for error in result.errors] == ["JobCancelled"]
    assert result.started_at is not None and result.worker_ids
    assert delayq.dead == []
