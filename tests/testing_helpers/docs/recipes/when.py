"""Tests of docs/recipes/when.md. They run in a project that has the files which the page shows."""

from datetime import UTC, datetime, timedelta

import pytest
from auctions import tasks as auctions
from digests import tasks as digests
from django.core import mail
from django.db import transaction
from django.test import RequestFactory
from index import tasks as index
from orders import tasks as orders
from pushes import tasks as pushes
from rates import tasks as rates
from signup import tasks as signup
from sync import tasks as sync
from welcome import views


def test_an_email_goes_out_after_ten_minutes(delayq):
    views.sign_up(RequestFactory().post("/", {"address": "ann@example.com"}))
    delayq.advance(minutes=9, run=True)
    assert mail.outbox == []
    delayq.advance(minutes=1, run=True)
    assert [message.to for message in mail.outbox] == [["ann@example.com"]]


@pytest.mark.django_db
def test_a_job_runs_after_the_commit_and_not_after_a_rollback(delayq):
    signup.sign_up("ann")
    delayq.run_due()
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        signup.sign_up("bob")
        raise ZeroDivisionError
    delayq.run_due()
    assert signup.greeted == ["ann"]


def test_a_paid_order_has_no_reminder(delayq):
    orders.placed(7)
    orders.placed(8)
    orders.paid(7)
    orders.paid(9)
    assert [job.args for job in delayq.enqueued] == [[8]]


def test_a_deadline_moves(delayq):
    moment = delayq.now + timedelta(hours=1)
    auctions.set_end(7, moment)
    auctions.set_end(7, moment + timedelta(minutes=5))
    delayq.assert_enqueued(auctions.close, args=[7], due=moment + timedelta(minutes=5), count=1)


def test_a_digest_comes_at_nine_in_tokyo(delayq):
    delayq.advance_to(datetime(2029, 1, 5, 12, tzinfo=UTC))
    digests.choose_time_zone(7, "Asia/Tokyo")
    [ran] = delayq.advance(days=1, run=True)
    assert ran.occurrence == datetime(2029, 1, 6, 0, tzinfo=UTC)
    assert digests.sent == [7]
    digests.unsubscribe(7)
    delayq.advance(days=1, run=True)
    assert digests.sent == [7]


def test_rates_are_refreshed_every_five_minutes(delayq):
    delayq.declare_schedules(rates.refresh_rates)
    delayq.run_due()
    assert len(delayq.advance(minutes=20, run=True)) == 4


def test_the_week_is_sent_on_monday(delayq):
    delayq.advance_to(datetime(2029, 1, 5, 12, tzinfo=UTC))  # a Friday
    delayq.declare_schedules(rates.send_week)
    [run] = delayq.advance(days=7, run=True)
    assert run.occurrence == datetime(2029, 1, 8, 8, tzinfo=UTC)


def test_a_late_push_is_not_sent(delayq):
    pushes.push.enqueue("now")
    delayq.advance(seconds=301)
    [run] = delayq.run_due()
    assert (run.ending, pushes.pushed) == ("expired", [])


def test_a_series_of_changes_makes_one_run(delayq):
    for _ in range(10):
        index.index.enqueue(7)
    delayq.advance(seconds=10, run=True)
    assert index.indexed == [7]


def test_an_account_has_one_waiting_job(delayq):
    assert sync.sync.enqueue(7).created
    assert not sync.sync.enqueue(7).created
    delayq.run_due()
    assert sync.synced == [7]
