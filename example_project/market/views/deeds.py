"""What a player does: sell, bid, watch, move, call off. Each is a POST that ends on the sale's page."""

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
from market.views.item import describe


@contextmanager
def told(request: HttpRequest, success: str, *, saved: bool = True) -> Iterator[None]:
    """Tell the player how the block went: done, not now, or with Redis away.

    `saved`: whether the row is saved for certain when Redis fails, because only then it is asked for anything.
    """
    try:
        yield
    except sales.NotNow as refusal:
        messages.error(request, str(refusal))
    except StoreError as error:
        # Jobs that are unsent were to be sent after the commit: the row is saved. "Plan it again" on its page
        # sends them.
        outcome = "Saved, but its jobs are not in line with it yet" if saved or error.unsent else "Nothing was saved"
        messages.warning(request, f"{outcome}: {error}")
    else:
        messages.success(request, success)


def usual_wait() -> timedelta:
    """What the form proposes: long enough that a reminder goes out."""
    return max(sales.reminder_lead() * 1.5, timedelta(minutes=1))


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def sell(request: HttpRequest) -> HttpResponse:
    """Put an item up for sale in the future."""
    form = SellForm(request.POST or None, initial={"opens_in": usual_wait(), "open_for": timedelta(hours=1)})
    if request.method == "POST" and form.is_valid():
        with told(request, "Your item is up for sale.", saved=False):
            return redirect(sales.put_up(seller=request.user, **form.cleaned_data))
        return redirect("shelf", "mine")
    return render(request, "market/sell.html", {"form": form})


@login_required
@require_POST
def bid(request: HttpRequest, pk: int) -> HttpResponse:
    """Bid for an open sale."""
    sale = get_object_or_404(Sale, pk=pk)
    form = BidForm(request.POST)
    if not form.is_valid():
        return render(request, "market/sale.html", describe(request, pk) | {"bid_form": form}, status=422)
    amount = form.cleaned_data["amount"]
    with told(request, f"You bid {amount} gold."):
        sales.bid(sale, bidder=request.user, amount=amount)
    return redirect(sale)


@login_required
@require_POST
def move(request: HttpRequest, pk: int) -> HttpResponse:
    """Give one's own sale another opening."""
    sale = get_object_or_404(Sale, pk=pk, seller=request.user)
    form = MoveForm(request.POST)
    if not form.is_valid():
        return render(request, "market/sale.html", describe(request, pk) | {"move_form": form}, status=422)
    with told(request, "Moved. The job waits for the new opening."):
        sales.move(sale, opens_in=form.cleaned_data["opens_in"])
    return redirect(sale)


@login_required
@require_POST
def call_off(request: HttpRequest, pk: int) -> HttpResponse:
    """Withdraw one's own sale before it opens."""
    sale = get_object_or_404(Sale, pk=pk, seller=request.user)
    with told(request, "Called off. Its jobs are cancelled."):
        sales.call_off(sale)
    return redirect(sale)


@login_required
@require_POST
def plan_again(request: HttpRequest, pk: int) -> HttpResponse:
    """Send the jobs of a sale that has none, as when Redis was away while it was put up."""
    sale = get_object_or_404(Sale, pk=pk, seller=request.user)
    with told(request, "The sale has its jobs again."):
        sales.follow(sale)
    return redirect(sale)


@login_required
@require_POST
def watch(request: HttpRequest, pk: int) -> HttpResponse:
    """Ask for the reminder, or no longer."""
    sale = get_object_or_404(Sale, pk=pk)
    if request.POST.get("watch") == "on":
        sale.watchers.add(request.user)
    else:
        sale.watchers.remove(request.user)
    return redirect(sale)
