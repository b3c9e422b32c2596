"""The tasks, called as plain functions: twice, late, early, and for deleted sales."""

from datetime import timedelta

import pytest
from django.utils import timezone

from django_delayq import RetryLater
from market import sales
from market.models import Notice, Sale, State, TaskRun
from market.tasks import close_bids, open_sale, remove_old_notices, send_reminder


def notices():
    return sorted((notice.player.username, notice.kind) for notice in Notice.objects.select_related("player"))


def test_opening_twice_opens_once_and_schedules_one_closing(put_up_open):
    sale = put_up_open()
    job = close_bids.get_job(key=sale.key)
    open_sale(sale.pk)
    again = Sale.objects.get()
    assert (again.state, again.opened_at) == (State.OPEN, sale.opened_at)
    assert close_bids.get_job(key=sale.key).id == job.id


def test_opening_again_schedules_a_closing_lost_in_a_crash(put_up_open):
    sale = put_up_open()
    close_bids.get_job(key=sale.key).cancel()
    open_sale(sale.pk)
    assert close_bids.get_job(key=sale.key).due == sale.closes_at


def test_a_job_that_missed_a_move_retries_at_the_new_time(put_up):
    sale = put_up(opens_in=timedelta(hours=2))
    with pytest.raises(RetryLater) as later:
        open_sale(sale.pk)
    assert timedelta(hours=1, minutes=59) < later.value.delay <= timedelta(hours=2)
    with pytest.raises(RetryLater):
        send_reminder(sale.pk)
    assert Sale.objects.get().state == State.UPCOMING
    assert notices() == []


def test_a_sale_called_off_is_neither_opened_nor_announced_nor_closed(put_up):
    sale = sales.call_off(put_up(opens_in=timedelta(0)))
    for task in (open_sale, send_reminder, close_bids):
        task(sale.pk)
    assert Sale.objects.get().state == State.CALLED_OFF
    assert notices() == []


def test_closing_twice_sells_once_to_the_best_bid(put_up_open, ben):
    sale = put_up_open(starting_price=10)
    for amount in (10, 20):
        sales.bid(sale, bidder=ben, amount=amount)
    close_bids(sale.pk)
    closed_at = Sale.objects.get().closed_at
    close_bids(sale.pk)
    sale = Sale.objects.get()
    assert (sale.state, sale.closed_at, sale.winning_bid.amount) == (State.CLOSED, closed_at, 20)
    assert notices() == [("ann", "sold"), ("ben", "won")]


def test_closing_without_a_bid_notifies_the_seller(put_up_open):
    close_bids(put_up_open().pk)
    assert Sale.objects.get().winning_bid is None
    assert notices() == [("ann", "unsold")]


def test_a_reminder_goes_once_to_the_seller_and_the_watchers(put_up, ben):
    sale = put_up(opens_in=timedelta(minutes=10))
    sale.watchers.add(ben)
    send_reminder(sale.pk)
    send_reminder(sale.pk)
    assert notices() == [("ann", "reminder"), ("ben", "reminder")]


def test_a_reminder_after_the_opening_notifies_nobody(put_up_open):
    send_reminder(put_up_open().pk)
    assert notices() == []


def test_jobs_of_a_deleted_sale_do_nothing(put_up):
    sale = put_up()
    pk = sale.pk
    sale.delete()
    for task in (open_sale, send_reminder, close_bids):
        task(pk)


def test_a_call_outside_a_worker_is_not_logged(put_up_open):
    assert put_up_open().opened_at <= timezone.now()
    assert not TaskRun.objects.exists()


def test_old_notices_that_were_read_are_removed_each_night(delayq, put_up, ben):
    sale, now = put_up(), timezone.now()
    for number, (age, read) in enumerate([(91, True), (91, False), (89, True)]):
        Notice.objects.create(
            player=ben,
            sale=sale,
            kind=Notice.Kind.REMINDER,
            opening=now + timedelta(days=number),
            at=now - timedelta(days=age),
            read=read,
        )
    delayq.declare_schedules(remove_old_notices)
    [ran] = [run for run in delayq.advance(days=1, run=True) if run.schedule]
    assert ran.occurrence.hour == 4
    assert sorted((now - notice.at).days for notice in Notice.objects.filter(player=ben)) == [89, 91]
