"""The three tasks of a sale. Each reads the row first and acts only if something is left to do.

So they are safe to run twice, which happens if a worker dies before it acknowledges the job. They are also safe to run
at an old time, which happens if the sale moves while its job is running.

A fourth task runs each night. A fifth uses Django's own @task; a page looks its result up.
"""

from datetime import timedelta

from django.db import transaction
from django.db.models import Sum
from django.utils import timezone

try:
    from django.tasks import task
except ImportError:  # Django 5.2 has no tasks; django-tasks is their backport
    from django_tasks import task

from django_delayq import RetryLater, delayed_task
from market.models import Notice, Sale, State
from market.run_log import log_run

#: Redis's clock decides when a job is due, this host's clock when the row is: they may differ by this much.
SKEW = timedelta(seconds=1)


@delayed_task(queue="sales", priority=10)
def open_sale(sale_id: int) -> None:
    """Open the sale and schedule its closing."""
    with log_run("open_sale", sale_id=sale_id), transaction.atomic():
        now = timezone.now()
        waiting = Sale.objects.filter(pk=sale_id, state=State.UPCOMING)
        waiting.filter(opens_at__lte=now + SKEW).update(state=State.OPEN, opened_at=now)
        sale = Sale.objects.filter(pk=sale_id).first()
        if sale is None:
            return
        if sale.state == State.OPEN:
            # Also if an earlier run opened it: that run may have died before this line. The unique key prevents a
            # second job. The job is sent when the transaction commits.
            close_bids.at(sale.closes_at).using(key=sale.key).enqueue(sale.pk)
        elif sale.state == State.UPCOMING:
            raise RetryLater(sale.opens_at - now)


@delayed_task(queue="sales", priority=10)
def close_bids(sale_id: int) -> None:
    """Close the sale: the best bid wins, and seller and winner are notified."""
    with log_run("close_bids", sale_id=sale_id), transaction.atomic():
        sale = Sale.objects.select_for_update().filter(pk=sale_id, state=State.OPEN).first()
        if sale is None:
            return
        sale.state, sale.closed_at, sale.winning_bid = State.CLOSED, timezone.now(), sale.best_bid
        sale.save(update_fields=["state", "closed_at", "winning_bid"])
        if sale.winning_bid is None:
            notify(sale, Notice.Kind.UNSOLD, {sale.seller_id})
        else:
            notify(sale, Notice.Kind.SOLD, {sale.seller_id})
            notify(sale, Notice.Kind.WON, {sale.winning_bid.bidder_id})


@delayed_task(queue="letters")
def send_reminder(sale_id: int) -> None:
    """Notify the seller and all watchers that the sale opens soon."""
    with log_run("send_reminder", sale_id=sale_id), transaction.atomic():
        sale = Sale.objects.select_for_update().filter(pk=sale_id, state=State.UPCOMING).first()
        if sale is None or sale.reminded_for == sale.opens_at:
            return
        early = sale.remind_at - timezone.now()
        if early > SKEW:
            raise RetryLater(early)
        notify(sale, Notice.Kind.REMINDER, {sale.seller_id, *sale.watchers.values_list("pk", flat=True)})
        sale.reminded_for = sale.opens_at
        sale.save(update_fields=["reminded_for"])


@delayed_task(queue="letters", cron="0 4 * * *", tz="UTC")
def remove_old_notices() -> None:
    """Remove the notices that were read and are older than 90 days."""
    Notice.objects.filter(read=True, at__lt=timezone.now() - timedelta(days=90)).delete()


@task(queue_name="letters")
def count_gold(player_id: int) -> dict[str, int]:
    """Add up what a player sold and won. Its result is stored for a day."""
    sold = Sale.objects.filter(seller=player_id, winning_bid__isnull=False)
    won = Sale.objects.filter(winning_bid__bidder=player_id)
    return {
        "sold": sold.count(),
        "earned": sold.aggregate(gold=Sum("winning_bid__amount"))["gold"] or 0,
        "won": won.count(),
        "spent": won.aggregate(gold=Sum("winning_bid__amount"))["gold"] or 0,
    }


def notify(sale: Sale, kind: Notice.Kind, players: set[int]) -> None:
    """Write one notice for each player, at most one for each opening."""
    Notice.objects.bulk_create(
        [Notice(player_id=player, sale=sale, kind=kind, opening=sale.opens_at) for player in sorted(players)],
        ignore_conflicts=True,
    )
