"""What a player may do with a sale: put it up, move it, call it off, bid. Views and the demo both call this.

The row changes first, under a lock and in a transaction; the jobs follow when it has committed. So the worst
that a crash in between can do is a job that looks at the row, sees a later time, and puts itself off.
"""

from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from django_delayq import JobHandle
from django_delayq.task.task import Task
from market.models import Bid, Sale, State
from market.tasks import close_bids, open_sale, send_reminder


class NotNow(Exception):
    """The sale no longer, or not yet, allows this. The text is for the player."""


def put_up(*, seller: Any, opens_in: timedelta, open_for: timedelta, **item: Any) -> Sale:
    """Put an item up for sale in the future, with the jobs that will open it and remind of it."""
    opens_at = timezone.now() + opens_in
    with transaction.atomic():
        sale = Sale.objects.create(seller=seller, opens_at=opens_at, closes_at=opens_at + open_for, **item)
        # Inside the transaction, as in any view: both jobs are sent when it commits, neither if it does not.
        open_sale.at(sale.opens_at).using(key=sale.key).enqueue(sale.pk)
        if sale.remind_at > timezone.now():
            send_reminder.at(sale.remind_at).using(key=sale.key).enqueue(sale.pk)
    return sale


def move(sale: Sale, *, opens_in: timedelta) -> Sale:
    """Give the sale another opening; it stays open as long as it was to."""
    with transaction.atomic():
        sale = locked(sale, State.UPCOMING, "It has begun; only a sale that has not can be moved.")
        open_for = sale.closes_at - sale.opens_at
        sale.opens_at = timezone.now() + opens_in
        sale.closes_at = sale.opens_at + open_for
        sale.save(update_fields=["opens_at", "closes_at"])
        transaction.on_commit(partial(follow, sale))
    return sale


def call_off(sale: Sale) -> Sale:
    """Withdraw the sale before it opens, and the jobs with it."""
    with transaction.atomic():
        sale = locked(sale, State.UPCOMING, "It has begun; only a sale that has not can be called off.")
        sale.state = State.CALLED_OFF
        sale.save(update_fields=["state"])
        transaction.on_commit(partial(withdraw, sale))
    return sale


def bid(sale: Sale, *, bidder: Any, amount: int) -> Bid:
    """Offer an amount. Refused before the opening, after the close, below the least bid, to the seller."""
    with transaction.atomic():
        sale = locked(sale, State.OPEN, "It is not open for bids.")
        if sale.closes_at <= timezone.now():
            raise NotNow("The bids have just closed.")
        if sale.seller_id == bidder.pk:
            raise NotNow("You cannot bid for what you sell.")
        if amount < sale.least_bid:
            raise NotNow(f"The least bid is {sale.least_bid} gold now.")
        return Bid.objects.create(sale=sale, bidder=bidder, amount=amount)


def locked(sale: Sale, state: State, otherwise: str) -> Sale:
    """Read the row again under a lock, if it is still in this state."""
    row = Sale.objects.select_for_update().filter(pk=sale.pk, state=state).first()
    if row is None:
        raise NotNow(otherwise)
    return row


# --- The jobs of a sale ----------------------------------------------------------------------------------


def follow(sale: Sale) -> None:
    """Bring the jobs in line with the row. Safe to repeat; also the cure for a job that was never sent."""
    if sale.state == State.UPCOMING:
        plan(open_sale, sale, sale.opens_at)
        if sale.remind_at > timezone.now():
            plan(send_reminder, sale, sale.remind_at)
        elif reminder := send_reminder.get_job(key=sale.key):
            reminder.cancel()
    elif sale.state == State.OPEN:
        plan(close_bids, sale, sale.closes_at)


def plan(task: Task[[int], None], sale: Sale, moment: datetime) -> None:
    """Let the task's one job for this sale run at this moment."""
    job = task.get_job(key=sale.key)
    if job is None:
        task.at(moment).using(key=sale.key).enqueue(sale.pk)
    else:
        # False: it runs at this very moment. It looks at the row, finds it moved, and puts itself off.
        job.reschedule(at=moment)


def withdraw(sale: Sale) -> None:
    """Cancel the jobs of a sale that was called off. One that runs just now finds nothing to do."""
    for task in (open_sale, send_reminder):
        if job := task.get_job(key=sale.key):
            job.cancel()


def jobs(sale: Sale) -> list[tuple[str, JobHandle]]:
    """The jobs that wait for this sale, with the task's name, soonest first."""
    tasks = {State.UPCOMING: (send_reminder, open_sale), State.OPEN: (close_bids,)}.get(State(sale.state), ())
    found = ((task.__name__, task.get_job(key=sale.key)) for task in tasks)
    return [(name, job) for name, job in found if job is not None]


def reminder_lead() -> timedelta:
    """How long before an opening its reminder goes out."""
    return timedelta(seconds=settings.MARKET_REMINDER_LEAD)
