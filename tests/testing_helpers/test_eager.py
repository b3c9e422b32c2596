"""Eager mode: a job runs when it is enqueued."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from django_delayq import enqueue_many
from django_delayq.testing import DelayQ
from tests.testing_helpers.tasks import ask_the_bank, charge, close_sale, give_up, send_reminder


def test_a_job_runs_before_enqueue_returns(delayq: DelayQ, calls: list[Any]) -> None:
    with delayq.eager():
        job = send_reminder.enqueue(1)
        assert calls == [(1, "letter")]
        assert job.refresh().state == "gone"
        ask_the_bank.enqueue(2)
    assert calls == [(1, "letter"), 2]


def test_eager_mode_ends(delayq: DelayQ, calls: list[Any]) -> None:
    with delayq.eager():
        pass
    send_reminder.enqueue(1)
    assert delayq.advance(hours=1) == []
    assert calls == []


def test_delays_are_skipped_and_time_does_not_pass(delayq: DelayQ, calls: list[Any]) -> None:
    before = delayq.now
    with delayq.eager():
        close_sale.after(days=1).enqueue(1)
    # The job that the task enqueued ran after it, without its delay of an hour.
    assert calls == [1, (1, "letter")]
    assert delayq.enqueued == []
    assert delayq.now - before < timedelta(hours=1)


def test_with_honour_delays_a_job_runs_when_its_time_comes(delayq: DelayQ, calls: list[Any]) -> None:
    with delayq.eager(honour_delays=True):
        send_reminder.enqueue(2)
        close_sale.after(minutes=10).enqueue(1)
        assert calls == [(2, "letter")]
        delayq.advance(minutes=10)
        assert calls == [(2, "letter"), 1]
        delayq.assert_enqueued(send_reminder, due_in=3600)
        delayq.advance(hours=1)
        assert calls[-1] == (1, "letter")


def test_an_eager_mode_inside_another_has_its_own_options(delayq: DelayQ, calls: list[Any]) -> None:
    with delayq.eager():
        with delayq.eager(honour_delays=True, errors="retry"):
            send_reminder.after(hours=1).enqueue(1)
            charge.enqueue(5)
            assert (1, "letter") not in calls
            delayq.assert_enqueued(charge)
            delayq.assert_enqueued(send_reminder, due_in=3600)
        send_reminder.after(hours=1).enqueue(2)
        assert (2, "letter") in calls


def test_an_error_is_raised_by_the_enqueue(delayq: DelayQ) -> None:
    with delayq.eager(), pytest.raises(ValueError, match="no money: 5"):
        charge.enqueue(5)
    delayq.assert_enqueued(charge, due_in=2)


def test_with_errors_retry_all_attempts_run_at_once(delayq: DelayQ, calls: list[Any]) -> None:
    with delayq.eager(errors="retry"):
        charge.enqueue(5, fails=2)
        assert calls == [(5, 1), (5, 2), (5, 3)]
        charge.enqueue(6)
        give_up.enqueue()
    assert [job.task.rsplit(".")[-1] for job in delayq.dead] == ["charge", "give_up"]


def test_jobs_enqueued_before_keep_their_times(delayq: DelayQ, calls: list[Any]) -> None:
    send_reminder.after(hours=1).enqueue(1)
    with delayq.eager():
        send_reminder.after(hours=2).enqueue(2)
    assert calls == [(2, "letter")]
    delayq.assert_enqueued(send_reminder, args=[1], due_in=3600)


def test_an_existing_job_of_a_key_keeps_its_time(delayq: DelayQ, calls: list[Any]) -> None:
    holder = send_reminder.using(key="r", delay=3600).enqueue(1)
    with delayq.eager():
        assert send_reminder.using(key="r").enqueue(2).id == holder.id
    assert calls == []
    delayq.assert_enqueued(send_reminder, args=[1], due_in=3600)


def test_jobs_of_one_call_run_in_their_order(delayq: DelayQ, calls: list[Any]) -> None:
    with delayq.eager():
        enqueue_many([send_reminder.job(1), send_reminder.after(60).job(2), send_reminder.using(priority=99).job(3)])
    assert calls == [(3, "letter"), (1, "letter"), (2, "letter")]


@pytest.mark.django_db(transaction=True)
def test_a_job_of_a_transaction_runs_after_its_commit(delayq: DelayQ, calls: list[Any]) -> None:
    with delayq.eager():
        with transaction.atomic():
            send_reminder.enqueue(1)
            assert calls == []
        assert calls == [(1, "letter")]


@pytest.mark.django_db
def test_in_a_test_case_a_job_runs_when_the_codes_transaction_ends(delayq: DelayQ, calls: list[Any]) -> None:
    with delayq.eager():
        with transaction.atomic():
            send_reminder.enqueue(1)
            assert calls == []
        assert calls == [(1, "letter")]
