"""A sale and its jobs: the row is authoritative, the jobs match it."""

from datetime import timedelta

import pytest
from django.db import transaction
from django.utils import timezone

from market import sales
from market.models import Notice, Sale, State
from market.tasks import close_bids, open_sale, send_reminder

HOUR = timedelta(hours=1)


def due_times(sale):
    return {name: job.due for name, job in sales.jobs(sale)}


def test_a_sale_put_up_has_a_job_for_its_opening_and_one_for_its_reminder(put_up):
    sale = put_up(opens_in=HOUR)
    assert due_times(sale) == {"open_sale": sale.opens_at, "send_reminder": sale.opens_at - timedelta(minutes=10)}


def test_a_sale_that_opens_soon_has_no_reminder(put_up):
    assert list(due_times(put_up(opens_in=timedelta(minutes=9)))) == ["open_sale"]


def test_a_sale_that_is_rolled_back_leaves_no_job(put_up):
    with transaction.atomic():
        sale = put_up()
        transaction.set_rollback(True)
    assert open_sale.get_job(key=sale.key) is None
    assert send_reminder.get_job(key=sale.key) is None


def test_moving_a_sale_moves_the_very_same_jobs(put_up):
    sale = put_up(opens_in=HOUR, open_for=2 * HOUR)
    before = {name: job.id for name, job in sales.jobs(sale)}
    moved = sales.move(sale, opens_in=5 * HOUR)
    assert {name: job.id for name, job in sales.jobs(moved)} == before
    assert due_times(moved) == {"open_sale": moved.opens_at, "send_reminder": moved.remind_at}
    assert moved.opens_at - sale.opens_at > 3.9 * HOUR
    assert moved.closes_at - moved.opens_at == 2 * HOUR


def test_moving_a_sale_close_to_now_cancels_its_reminder(put_up):
    moved = sales.move(put_up(opens_in=HOUR), opens_in=timedelta(minutes=5))
    assert due_times(moved) == {"open_sale": moved.opens_at}


def test_moving_a_sale_away_from_now_gives_it_a_reminder(put_up):
    moved = sales.move(put_up(opens_in=timedelta(minutes=5)), opens_in=HOUR)
    assert due_times(moved) == {"open_sale": moved.opens_at, "send_reminder": moved.remind_at}


def test_a_move_that_is_rolled_back_moves_no_job(put_up):
    sale = put_up()
    with transaction.atomic():
        sales.move(sale, opens_in=5 * HOUR)
        transaction.set_rollback(True)
    assert due_times(sale)["open_sale"] == sale.opens_at


def test_calling_a_sale_off_cancels_its_jobs(put_up):
    sale = sales.call_off(put_up())
    assert sale.state == State.CALLED_OFF
    assert open_sale.get_job(key=sale.key) is None
    assert send_reminder.get_job(key=sale.key) is None


@pytest.mark.parametrize("action", [lambda sale: sales.move(sale, opens_in=HOUR), sales.call_off])
def test_a_sale_that_has_begun_is_neither_moved_nor_called_off(put_up_open, action):
    sale = put_up_open()
    with pytest.raises(sales.NotNow, match="has begun"):
        action(sale)
    assert Sale.objects.get().state == State.OPEN
    assert due_times(sale) == {"close_bids": sale.closes_at}


@pytest.mark.parametrize("task", [open_sale, send_reminder])
def test_a_lost_job_is_scheduled_again_and_the_other_kept(put_up, task):
    sale = put_up()
    kept = {name: job.id for name, job in sales.jobs(sale)}
    task.get_job(key=sale.key).cancel()
    sales.update_jobs(sale)
    assert due_times(sale) == {"open_sale": sale.opens_at, "send_reminder": sale.remind_at}
    now = {name: job.id for name, job in sales.jobs(sale)}
    assert [name for name in now if now[name] != kept[name]] == [task.__name__]


def test_a_lost_closing_is_scheduled_again(put_up_open):
    sale = put_up_open()
    close_bids.get_job(key=sale.key).cancel()
    sales.update_jobs(sale)
    assert due_times(sale) == {"close_bids": sale.closes_at}


def test_the_best_bid_leads_and_the_next_must_be_a_twentieth_higher(put_up_open, ben):
    sale = put_up_open(starting_price=100)
    with pytest.raises(sales.NotNow, match="least bid is 100"):
        sales.bid(sale, bidder=ben, amount=99)
    sales.bid(sale, bidder=ben, amount=100)
    with pytest.raises(sales.NotNow, match="least bid is 105"):
        sales.bid(sale, bidder=ben, amount=104)
    sales.bid(sale, bidder=ben, amount=105)
    assert sale.best_bid.amount == 105


def test_bids_before_the_opening_are_refused(put_up, ben):
    with pytest.raises(sales.NotNow, match="not open"):
        sales.bid(put_up(), bidder=ben, amount=1000)


def test_bids_after_the_closing_time_are_refused_even_if_no_worker_has_closed_the_sale(put_up_open, ben):
    sale = put_up_open(open_for=timedelta(0))
    with pytest.raises(sales.NotNow, match="just closed"):
        sales.bid(sale, bidder=ben, amount=1000)


def test_sellers_cannot_bid_for_their_own_sales(put_up_open, ann):
    with pytest.raises(sales.NotNow, match="what you sell"):
        sales.bid(put_up_open(), bidder=ann, amount=1000)


def test_a_moved_sale_is_announced_again(put_up, ann):
    sale = put_up(opens_in=timedelta(minutes=10))
    send_reminder(sale.pk)
    sale.refresh_from_db()
    assert sale.reminded_for == sale.opens_at
    moved = sales.move(sale, opens_in=HOUR)
    assert due_times(moved)["send_reminder"] == moved.remind_at
    Sale.objects.update(opens_at=timezone.now() + timedelta(minutes=10))
    send_reminder(sale.pk)
    assert Notice.objects.filter(player=ann, kind=Notice.Kind.REMINDER).count() == 2
