"""The market's tables: sales, bids and notices. The log of task runs is in `run_log.py`.

The row of a sale is authoritative; its jobs in Redis only make workers read it at the right time.
"""

from datetime import datetime, timedelta

from django.conf import settings
from django.db import models
from django.urls import reverse
from django.utils import timezone

from market.run_log import TaskRun

__all__ = ["Bid", "TaskRun", "Notice", "Sale"]


class Kind(models.TextChoices):
    BLADE = "blade", "Blade"
    SHIELD = "shield", "Shield"
    POTION = "potion", "Potion"
    GEM = "gem", "Gem"
    SCROLL = "scroll", "Scroll"
    LANTERN = "lantern", "Lantern"


class State(models.TextChoices):
    UPCOMING = "upcoming", "Opens soon"
    OPEN = "open", "Open for bids"
    CLOSED = "closed", "Closed"
    CALLED_OFF = "called_off", "Called off"


class Sale(models.Model):
    """One item, put up for sale in the future. Tasks open and close it; before that its seller may move it."""

    seller = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="sales")
    name = models.CharField(max_length=60)
    kind = models.CharField(max_length=10, choices=Kind.choices, default=Kind.GEM)
    description = models.TextField(max_length=600, blank=True)
    starting_price = models.PositiveIntegerField(default=10)
    state = models.CharField(max_length=10, choices=State.choices, default=State.UPCOMING, db_index=True)
    opens_at = models.DateTimeField()
    closes_at = models.DateTimeField()
    opened_at = models.DateTimeField(null=True, blank=True)
    closed_at = models.DateTimeField(null=True, blank=True)
    #: The opening that the last reminder announced. A moved sale gets a new reminder.
    reminded_for = models.DateTimeField(null=True, blank=True)
    winning_bid = models.OneToOneField("Bid", models.SET_NULL, null=True, blank=True, related_name="won")
    watchers = models.ManyToManyField(settings.AUTH_USER_MODEL, related_name="watched", blank=True)
    created = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ("opens_at", "pk")
        indexes = (models.Index(fields=("state", "opens_at")),)

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return reverse("sale", args=[self.pk])

    @property
    def key(self) -> str:
        """The unique key of this sale's jobs. Keys are unique for each task, so all three tasks can use it."""
        return f"sale:{self.pk}"

    @property
    def remind_at(self) -> datetime:
        return self.opens_at - timedelta(seconds=settings.MARKET_REMINDER_LEAD)

    @property
    def next_moment(self) -> datetime | None:
        """The time of the next change of state; None after the last one."""
        return {State.UPCOMING: self.opens_at, State.OPEN: self.closes_at}.get(State(self.state))

    @property
    def best_bid(self) -> "Bid | None":
        return self.bids.first()

    @property
    def least_bid(self) -> int:
        """The lowest acceptable bid: 5 % more than the best one."""
        best = self.best_bid
        return self.starting_price if best is None else best.amount + max(1, best.amount // 20)


class Bid(models.Model):
    """A player's bid. Bids never change; the highest one wins when the sale closes."""

    sale = models.ForeignKey(Sale, models.CASCADE, related_name="bids")
    bidder = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="bids")
    amount = models.PositiveIntegerField()
    at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("-amount", "pk")
        constraints = (models.UniqueConstraint(fields=("sale", "amount"), name="one_bid_an_amount"),)

    def __str__(self) -> str:
        return f"{self.amount} by {self.bidder}"


class Notice(models.Model):
    """A letter in a player's letter box. The constraint keeps a task that runs twice from writing it twice."""

    class Kind(models.TextChoices):
        REMINDER = "reminder", "Reminder"
        SOLD = "sold", "Sold"
        WON = "won", "Won"
        UNSOLD = "unsold", "Not sold"

    player = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="notices")
    sale = models.ForeignKey(Sale, models.CASCADE, related_name="notices")
    kind = models.CharField(max_length=10, choices=Kind.choices)
    opening = models.DateTimeField(help_text="The opening it announces: a moved sale has several.")
    at = models.DateTimeField(default=timezone.now)
    read = models.BooleanField(default=False)

    class Meta:
        ordering = ("-at", "-pk")
        constraints = (
            models.UniqueConstraint(fields=("player", "sale", "kind", "opening"), name="one_notice_an_opening"),
        )

    def __str__(self) -> str:
        return f"{self.get_kind_display()}: {self.sale} for {self.player}"
