"""The operations on a sale: put it up, move it, call it off, bid. Views and the demo call them.

Each changes the row first, under a lock and in a transaction; the jobs change after the commit. A crash in between
leaves at worst a job with the old time: it reads the row, sees a later time, and retries then.
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
    """The sale does not allow this in its current state. The text is shown to the player."""


def put_up(*, seller: Any, opens_in: timedelta, open_for: timedelta, **item: Any) -> Sale:
    """Create a sale, with the jobs for its opening and its reminder."""
    opens_at = timezone.now() + opens_in
    with transaction.atomic():
        sale = Sale.objects.create(seller=seller, opens_at=opens_at, closes_at=opens_at + open_for, **item)
        # Inside the transaction, as in any view: both jobs are sent after the commit, none after a rollback.
        open_sale.at(sale.opens_at).using(key=sale.key).enqueue(sale.pk)
        if sale.remind_at > timezone.now():
            send_reminder.at(sale.remind_at).using(key=sale.key).enqueue(sale.pk)
    return sale


def move(sale: Sale, *, opens_in: timedelta) -> Sale:
    """Move the opening; the sale stays open for the same time. Raises `NotNow` after the opening."""
    with transaction.atomic():
        sale = locked(sale, State.UPCOMING, "It has begun; only a sale that has not can be moved.")
        open_for = sale.closes_at - sale.opens_at
        sale.opens_at = timezone.now() + opens_in
        sale.closes_at = sale.opens_at + open_for
        sale.save(update_fields=["opens_at", "closes_at"])
        transaction.on_commit(partial(update_jobs, sale))
    return sale


def call_off(sale: Sale) -> Sale:
    """Call the sale off and cancel its jobs. Raises `NotNow` after the opening."""
    with transaction.atomic():
        sale = locked(sale, State.UPCOMING, "It has begun; only a sale that has not can be called off.")
        sale.state = State.CALLED_OFF
        sale.save(update_fields=["state"])
        transaction.on_commit(partial(cancel_jobs, sale))
    return sale


def bid(sale: Sale, *, bidder: Any, amount: int) -> Bid:
    """Place a bid. Raises `NotNow` if the sale is not open, the amount too low, or the bidder the seller."""
    with transaction.atomic():
        sale = locked(sale, State.OPEN, "It is not open for bids.")
        if sale.closes_at <= timezone.now():
            raise NotNow("The bids have just closed.")
        if sale.seller_id == bidder.pk:
            raise NotNow("You cannot bid for what you sell.")
        if amount < sale.least_bid:
            raise NotNow(f"The least bid is {sale.least_bid} gold now.")
        return Bid.objects.create(sale=sale, bidder=bidder, amount=amount)


def locked(sale: Sale, state: State, refusal: str) -> Sale:
    """Lock the row and return it as it is now. Raises `NotNow` if it is in another state."""
    row = Sale.objects.select_for_update().filter(pk=sale.pk, state=state).first()
    if row is None:
        raise NotNow(refusal)
    return row


# --- The jobs of a sale ----------------------------------------------------------------------------------


def update_jobs(sale: Sale) -> None:
    """Make the jobs match the row. Safe to repeat; it also sends a job that was lost."""
    if sale.state == State.UPCOMING:
        schedule(open_sale, sale, sale.opens_at)
        if sale.remind_at > timezone.now():
            schedule(send_reminder, sale, sale.remind_at)
        elif reminder := send_reminder.get_job(key=sale.key):
            reminder.cancel()
    elif sale.state == State.OPEN:
        schedule(close_bids, sale, sale.closes_at)


def schedule(task: Task[[int], None], sale: Sale, moment: datetime) -> None:
    """Schedule the task's only job for this sale at this moment, or reschedule it."""
    job = task.get_job(key=sale.key)
    if job is None:
        task.at(moment).using(key=sale.key).enqueue(sale.pk)
    else:
        # False if the job is running: it then reads the moved row, and retries at the new time.
        job.reschedule(at=moment)


def cancel_jobs(sale: Sale) -> None:
    """Cancel the jobs of a sale that was called off. One that is running finds nothing to do."""
    for task in (open_sale, send_reminder):
        if job := task.get_job(key=sale.key):
            job.cancel()


def jobs(sale: Sale) -> list[tuple[str, JobHandle]]:
    """Return the task name and handle of each scheduled job of this sale, soonest first."""
    tasks = {State.UPCOMING: (send_reminder, open_sale), State.OPEN: (close_bids,)}.get(State(sale.state), ())
    found = ((task.__name__, task.get_job(key=sale.key)) for task in tasks)
    return [(name, job) for name, job in found if job is not None]


def reminder_lead() -> timedelta:
    """Return the time between a reminder and its opening."""
    return timedelta(seconds=settings.MARKET_REMINDER_LEAD)
