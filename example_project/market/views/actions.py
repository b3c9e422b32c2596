"""A player's actions: sell, bid, watch, move, call off. Each is a POST that redirects to the sale's page."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from django_delayq.exceptions import StoreError
from market import sales
from market.forms import BidForm, MoveForm, SellForm
from market.models import Sale
from market.views.item import sale_context


@contextmanager
def message_result(request: HttpRequest, success: str, *, saved: bool = True) -> Iterator[None]:
    """Show the player a message about the block: success, a refusal, or an unavailable Redis.

    `saved`: whether the row is certainly saved when Redis fails, because jobs change only after the commit.
    """
    try:
        yield
    except sales.NotNow as refusal:
        messages.error(request, str(refusal))
    except StoreError as error:
        # `unsent` jobs were to be sent after the commit, so the row is saved. "Schedule it again" on its page sends
        # them.
        outcome = "Saved, but its jobs do not match it yet" if saved or error.unsent else "Nothing was saved"
        messages.warning(request, f"{outcome}: {error}")
    else:
        messages.success(request, success)


def default_wait() -> timedelta:
    """Return the initial value of "opens in": long enough for a reminder."""
    return max(sales.reminder_lead() * 1.5, timedelta(minutes=1))


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def sell(request: HttpRequest) -> HttpResponse:
    """Put an item up for sale in the future."""
    form = SellForm(request.POST or None, initial={"opens_in": default_wait(), "open_for": timedelta(hours=1)})
    if request.method == "POST" and form.is_valid():
        with message_result(request, "Your item is up for sale.", saved=False):
            return redirect(sales.put_up(seller=request.user, **form.cleaned_data))
        return redirect("shelf", "mine")
    return render(request, "market/sell.html", {"form": form})


@login_required
@require_POST
def bid(request: HttpRequest, pk: int) -> HttpResponse:
    """Place a bid for an open sale."""
    sale = get_object_or_404(Sale, pk=pk)
    form = BidForm(request.POST)
    if not form.is_valid():
        return render(request, "market/sale.html", sale_context(request, pk) | {"bid_form": form}, status=422)
    amount = form.cleaned_data["amount"]
    with message_result(request, f"You bid {amount} gold."):
        sales.bid(sale, bidder=request.user, amount=amount)
    return redirect(sale)


@login_required
@require_POST
def move(request: HttpRequest, pk: int) -> HttpResponse:
    """Move the opening of the player's own sale."""
    sale = get_object_or_404(Sale, pk=pk, seller=request.user)
    form = MoveForm(request.POST)
    if not form.is_valid():
        return render(request, "market/sale.html", sale_context(request, pk) | {"move_form": form}, status=422)
    with message_result(request, "Moved. The job waits for the new opening."):
        sales.move(sale, opens_in=form.cleaned_data["opens_in"])
    return redirect(sale)


@login_required
@require_POST
def call_off(request: HttpRequest, pk: int) -> HttpResponse:
    """Call the player's own sale off before it opens."""
    sale = get_object_or_404(Sale, pk=pk, seller=request.user)
    with message_result(request, "Called off. Its jobs are cancelled."):
        sales.call_off(sale)
    return redirect(sale)


@login_required
@require_POST
def schedule_again(request: HttpRequest, pk: int) -> HttpResponse:
    """Send the missing jobs of a sale, for example after Redis was unavailable."""
    sale = get_object_or_404(Sale, pk=pk, seller=request.user)
    with message_result(request, "The sale has its jobs again."):
        sales.update_jobs(sale)
    return redirect(sale)


@login_required
@require_POST
def watch(request: HttpRequest, pk: int) -> HttpResponse:
    """Subscribe to the reminder, or unsubscribe."""
    sale = get_object_or_404(Sale, pk=pk)
    if request.POST.get("watch") == "on":
        sale.watchers.add(request.user)
    else:
        sale.watchers.remove(request.user)
    return redirect(sale)
