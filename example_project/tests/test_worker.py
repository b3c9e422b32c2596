"""A whole life: a sale is put up, opens, and closes, as time passes."""

from datetime import timedelta

import time_machine

from django_delayq import get_job
from market import sales
from market.models import Notice, Sale, State, TaskRun
from market.tasks import close_bids, open_sale


def test_a_sale_opens_and_closes_by_its_jobs_and_the_run_log_has_them(put_up, delayq):
    sale = put_up(opens_in=timedelta(0), open_for=timedelta(0))
    delayq.run_due()
    sale.refresh_from_db()
    assert sale.state == State.CLOSED
    runs = TaskRun.objects.order_by("pk")
    assert [(run.task, run.sale_id, run.outcome) for run in runs] == [
        ("open_sale", sale.pk, "done"),
        ("close_bids", sale.pk, "done"),
    ]
    assert all(run.started >= run.due and run.attempt == 1 for run in runs)
    assert sales.jobs(sale) == []


def test_a_sale_of_next_week_opens_and_closes_to_its_minute(put_up, delayq, ben):
    sale = put_up(opens_in=timedelta(days=7), open_for=timedelta(hours=1))
    # The tasks read Python's clock, so that is changed; the queue's clock follows it.
    with time_machine.travel(sale.opens_at, tick=False) as clock:
        assert [job.task.rpartition(".")[2] for job in delayq.run_due()] == ["open_sale", "send_reminder"]
        sales.bid(sale, bidder=ben, amount=30)
        delayq.assert_enqueued(close_bids, args=[sale.pk], due_in=timedelta(hours=1), key=sale.key)
        clock.shift(timedelta(minutes=59))
        assert delayq.run_due() == []
        clock.shift(timedelta(minutes=1))
        delayq.run_due()
    sale.refresh_from_db()
    assert (sale.state, sale.winning_bid.bidder) == (State.CLOSED, ben)


def test_a_sale_opens_only_when_due(put_up, delayq):
    sale = put_up(opens_in=timedelta(hours=1))
    delayq.run_due()
    assert Sale.objects.get().state == State.UPCOMING
    assert {job.state for _, job in sales.jobs(sale)} == {"scheduled"}


def test_a_job_of_a_moved_sale_waits_for_the_new_opening(put_up, delayq):
    sale = put_up(opens_in=timedelta(0))
    Sale.objects.update(opens_at=sale.opens_at + timedelta(hours=3))
    delayq.run_due()
    assert Sale.objects.get().state == State.UPCOMING
    assert TaskRun.objects.get().outcome == "later"
    due = open_sale.get_job(key=sale.key).due
    assert abs(due - sale.opens_at - timedelta(hours=3)) < timedelta(minutes=5)


def test_a_failed_run_is_logged_with_its_error(put_up, delayq):
    from market import failing_tasks

    job = failing_tasks.fail_always.enqueue("nobody")
    delayq.run_due(errors="retry")
    run = TaskRun.objects.get()
    assert (run.job_id, run.outcome, run.attempt) == (job.id, "failed", 1)
    assert run.error == "Mishap: nobody lives at this address"
    assert get_job(job.id).state == "scheduled"


def test_reminders_reach_the_letter_box(put_up, delayq, ben, settings):
    settings.MARKET_REMINDER_LEAD = 3600.0
    sale = put_up(opens_in=timedelta(hours=1, seconds=0))
    sale.watchers.add(ben)
    # The reminder's time has just passed, so put_up schedules none; enqueueing it here makes it due at once.
    from market.tasks import send_reminder

    send_reminder.at(sale.remind_at).enqueue(sale.pk)
    delayq.run_due()
    assert set(Notice.objects.values_list("player__username", flat=True)) == {"ann", "ben"}
