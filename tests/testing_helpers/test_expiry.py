"""Expiry: a job that would begin too late ends without a run; every way to say so, and what it leaves behind."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.db import transaction

from django_delayq import RetryPolicy, delayed_task, enqueue_many, get_store
from django_delayq.exceptions import DelayTypeError, DelayValueError, InvalidMoment, JobExpired, KeyHeld, NoResult
from django_delayq.job.job import State
from django_delayq.signals import job_dead_lettered, job_expired, job_finished, job_started
from django_delayq.task import registry
from django_delayq.testing import DelayQ
from tests.one_by_one import one_by_one
from tests.testing_helpers.tasks import send_reminder, wait_for_answer

MINUTE = timedelta(minutes=1)


def flash() -> None:
    """Be declared as a task by a test."""


@pytest.fixture
def operations(delayq: DelayQ) -> Any:
    """The operations of the queue's only shard."""
    return one_by_one()


@pytest.fixture
def own_registry() -> Any:
    """Forget the tasks that the test declares."""
    with registry.override():
        yield


def test_a_job_that_waited_too_long_does_not_run(delayq: DelayQ, calls: list[Any]) -> None:
    send_reminder.using(expires=60).after(minutes=10).enqueue(1)
    send_reminder.after(minutes=10).enqueue(2)
    assert delayq.enqueued[0].expires is not None
    assert abs(delayq.enqueued[0].expires - delayq.now - 11 * MINUTE) < timedelta(seconds=5)
    delayq.advance(minutes=12)
    ran = delayq.run_due()
    assert [(run.args, run.ending) for run in ran] == [([1], "expired"), ([2], "succeeded")]
    assert "expired>" in repr(ran[0])
    assert calls == [(2, "letter")]
    assert delayq.dead == delayq.enqueued == []


def test_a_job_that_begins_in_time_runs(delayq: DelayQ, calls: list[Any]) -> None:
    with time_machine.travel(delayq.now, tick=False):
        send_reminder.using(expires=60).after(minutes=10).enqueue(1)
        delayq.advance(minutes=10, seconds=55)
        delayq.run_due()
    assert calls == [(1, "letter")]


@pytest.mark.parametrize("span", [60, 60.0, MINUTE])
def test_a_moment_is_as_good_as_a_span(delayq: DelayQ, calls: list[Any], span: Any) -> None:
    send_reminder.using(expires=delayq.now + MINUTE).enqueue(1)
    send_reminder.using(expires=span).enqueue(2)
    delayq.advance(seconds=65)
    assert [run.ending for run in delayq.run_due()] == ["expired", "expired"]
    assert calls == []


def test_a_kept_result_says_that_the_job_expired(delayq: DelayQ) -> None:
    job = send_reminder.using(expires=60, store_result=True).enqueue(1)
    delayq.advance(minutes=2)
    delayq.run_due()
    assert job.refresh().state is State.EXPIRED
    for look in (lambda: job.result, lambda: job.wait(timeout=1)):
        with pytest.raises(JobExpired, match=f"job {job.id} has no result, it is expired"):
            look()
    without = send_reminder.using(expires=60).enqueue(1)
    delayq.advance(minutes=2)
    delayq.run_due()
    assert without.refresh().state is State.GONE
    with pytest.raises(NoResult):
        _ = without.result


def test_an_expired_job_sends_one_signal_and_no_other(delayq: DelayQ) -> None:
    heard: list[Any] = []

    def hear(signal: Any, **facts: Any) -> None:
        heard.append((signal, facts["sender"].name, facts["job"].id))

    signals = (job_started, job_finished, job_dead_lettered, job_expired)
    for signal in signals:
        signal.connect(hear)
    try:
        job = send_reminder.using(expires=60).enqueue(1)
        delayq.advance(minutes=2)
        delayq.run_due()
    finally:
        for signal in signals:
            signal.disconnect(hear)
    assert heard == [(job_expired, send_reminder.name, job.id)]


def test_an_expired_job_may_become_a_dead_letter(delayq: DelayQ, calls: list[Any]) -> None:
    job = send_reminder.using(expires=60, on_expiry="dead", store_result=True).enqueue(1)
    delayq.advance(minutes=2)
    [run] = delayq.run_due()
    assert (run.ending, run.dead) == ("expired", True)
    assert repr(run).endswith("expired, dead>")
    [dead] = delayq.dead
    assert dead.id == job.id
    assert dead.error.startswith("The job expired at ")
    assert calls == []
    assert job.refresh().state is State.DEAD


def test_a_person_may_retry_an_expired_dead_letter(delayq: DelayQ, operations: Any, calls: list[Any]) -> None:
    send_reminder.using(expires=60, on_expiry="dead").enqueue(1)
    send_reminder.using(expires=delayq.now + MINUTE, on_expiry="dead").enqueue(2)
    delayq.advance(minutes=2)
    delayq.run_due()
    for row in get_store().lookup(0).page(State.DEAD).rows:
        assert operations.requeue(row.raw_id, died_us=row.moment_us)
    delayq.run_due()
    assert [number for number, _ in calls] == [1, 2]


def test_retries_do_not_move_the_moment(delayq: DelayQ) -> None:
    wait_for_answer.using(expires=30).enqueue()
    # It asks for another run in a minute, which is too late.
    assert [run.ending for run in delayq.drain()] == ["retry requested", "expired"]


def test_reschedule_moves_a_span_and_keeps_a_moment(delayq: DelayQ, calls: list[Any]) -> None:
    span = send_reminder.using(expires=60).after(minutes=1).enqueue(1)
    moment = send_reminder.using(expires=delayq.now + 5 * MINUTE).after(minutes=1).enqueue(2)
    earlier = send_reminder.using(expires=60).after(hours=1).enqueue(3)
    assert span.reschedule(delay=600) and moment.reschedule(delay=600) and earlier.reschedule(delay=0)
    delayq.advance(minutes=2)
    assert [(run.args, run.ending) for run in delayq.run_due()] == [([3], "expired")]
    delayq.advance(minutes=8, seconds=30)
    assert {run.args[0]: run.ending for run in delayq.run_due()} == {1: "succeeded", 2: "expired"}


def test_a_job_of_a_transaction_counts_from_its_commit(delayq: DelayQ, db: None) -> None:
    with transaction.atomic():
        send_reminder.using(expires=60).enqueue(1)
        delayq.advance(minutes=5)
    assert [run.ending for run in delayq.run_due()] == ["succeeded"]


def test_a_job_of_a_batch_counts_from_the_batch(delayq: DelayQ) -> None:
    jobs = [send_reminder.using(expires=60).job(1), send_reminder.using(expires=60).after(seconds=5).job(2)]
    delayq.advance(minutes=5)
    enqueue_many(jobs)
    delayq.advance(seconds=30)
    assert [run.ending for run in delayq.run_due()] == ["succeeded", "succeeded"]


def test_an_overdue_job_keeps_its_key_until_its_turn(delayq: DelayQ, operations: Any) -> None:
    task = send_reminder.using(expires=60, key="k", unique="reject")
    task.enqueue(1)
    operations.pause("mail", by="a test")
    delayq.advance(minutes=5)
    assert delayq.run_due() == []
    with pytest.raises(KeyHeld):
        task.enqueue(2)
    operations.resume("mail")
    assert [run.ending for run in delayq.run_due()] == ["expired"]
    assert task.enqueue(2).created


def test_the_task_says_when_its_jobs_expire(delayq: DelayQ, own_registry: None) -> None:
    task = delayed_task(expires=30, on_expiry="dead", retry=RetryPolicy(max_attempts=1))(flash)
    task.enqueue()
    task.using(expires=300, on_expiry="drop").enqueue()
    delayq.advance(minutes=1)
    assert [run.ending for run in delayq.run_due()] == ["expired", "succeeded"]
    assert len(delayq.dead) == 1


REFUSED = {
    "-1": (-1, DelayValueError, "expires must not be negative"),
    "0": (0, DelayValueError, "expires must be more than 0 seconds.*leave it out"),
    "nan": (float("nan"), DelayValueError, "expires must be a finite number of seconds"),
    "centuries": (10**18, DelayValueError, "before the year 2255"),
    "text": ("60", DelayTypeError, "expires must be a number of seconds, a timedelta, or an aware datetime, got str"),
    "true": (True, DelayTypeError, "got bool"),
    "date": (datetime(2030, 1, 1).date(), DelayTypeError, "got date"),
    "naive": (datetime(2030, 1, 1), InvalidMoment, "expires must be an aware datetime, got a naive one; use"),
}


@pytest.mark.parametrize(("expires", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_expiry_is_refused(delayq: DelayQ, own_registry: None, expires: Any, error: Any, words: str) -> None:
    for declare in (
        lambda: send_reminder.using(expires=expires),
        lambda: delayed_task(expires=expires)(flash),
    ):
        with pytest.raises(error, match=words):
            declare()
    assert delayq.enqueued == []


@pytest.mark.parametrize("on_expiry", ["fail", "", True, None.__class__])
def test_a_wrong_end_is_refused(on_expiry: Any) -> None:
    with pytest.raises(ValueError, match="on_expiry must be 'drop' or 'dead', got"):
        send_reminder.using(expires=60, on_expiry=on_expiry)


def test_a_moment_before_the_due_time_is_refused(delayq: DelayQ) -> None:
    past = send_reminder.using(expires=datetime(2020, 1, 1, tzinfo=UTC))
    soon = send_reminder.using(expires=delayq.now + MINUTE)
    for task in (past, soon.after(minutes=2), soon.at(delayq.now + 2 * MINUTE)):
        for send in (task.enqueue, task.job):
            with pytest.raises(InvalidMoment, match=r"expires must be later than the due time, 20.*could never begin"):
                send(1)
    assert delayq.enqueued == []
