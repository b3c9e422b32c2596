"""Pages that list: the market itself, one shelf of it, and the ledger of what ran."""

from datetime import timedelta
from statistics import median
from typing import Any

from django.core.paginator import Paginator
from django.db.models import Max, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from market.models import LedgerEntry, Sale, State

#: name -> (title, the sales on it in their order, how many the front page shows, what an empty one says)
SHELVES: dict[str, tuple[str, dict[str, Any], tuple[str, ...], int, str]] = {
    "open": ("Open for bids", {"state": State.OPEN}, ("closes_at",), 6, "Nothing is open at the moment."),
    "upcoming": ("Opening soon", {"state": State.UPCOMING}, ("opens_at",), 9, "Nothing is waiting to open."),
    "closed": ("Closed", {"state": State.CLOSED}, ("-closed_at",), 6, "No sale has closed yet."),
}


def on_shelf(filters: dict[str, Any], order: tuple[str, ...]) -> QuerySet[Sale]:
    """Sales with all that a card shows, in one query."""
    sales = Sale.objects.filter(**filters).order_by(*order, "pk")
    return sales.select_related("seller", "winning_bid__bidder").annotate(highest=Max("bids__amount"))


def shelves() -> list[dict[str, Any]]:
    """The front page's shelves. The version changes when any card on the shelf does."""
    rows = []
    for name, (title, filters, order, limit, empty) in SHELVES.items():
        found = on_shelf(filters, order)
        cards, total = list(found[:limit]), found.count()
        version = "-".join(f"{sale.pk}.{sale.opens_at.timestamp()}.{sale.highest}" for sale in cards)
        rows.append(
            {"name": name, "title": title, "cards": cards, "total": total, "empty": empty}
            | {"more": total - len(cards), "version": f"{total}:{version}"}
        )
    return rows


def usual_lateness() -> timedelta | None:
    """The median over the last hundred first attempts: what a job's lateness usually is."""
    last = LedgerEntry.objects.filter(attempt=1)[:100]
    return median(entry.lateness for entry in last) if last else None


@never_cache
@require_safe
def market(request: HttpRequest) -> HttpResponse:
    """The front page."""
    return render(request, "market/market.html", {"shelves": shelves(), "lateness": usual_lateness()})


@never_cache
@require_safe
def live(request: HttpRequest) -> HttpResponse:
    """The front page's shelves alone, for the script that exchanges those that changed."""
    return render(request, "market/_shelves.html", {"shelves": shelves()})


@never_cache
@require_safe
def shelf(request: HttpRequest, which: str) -> HttpResponse:
    """One shelf in full, or the sales of the player who asks."""
    if which == "mine" and request.user.is_authenticated:
        title, empty = "Your sales", "You have put nothing up for sale yet."
        found = on_shelf({"seller": request.user}, ("-created",))
    elif which in SHELVES:
        title, filters, order, _, empty = SHELVES[which]
        found = on_shelf(filters, order)
    else:
        raise Http404(f"no shelf {which}")
    page = Paginator(found, 24).get_page(request.GET.get("page"))
    return render(request, "market/shelf.html", {"title": title, "page": page, "empty": empty, "which": which})


@never_cache
@require_safe
def ledger(request: HttpRequest) -> HttpResponse:
    """Every run of a task, newest first, with its lateness."""
    page = Paginator(LedgerEntry.objects.select_related("sale"), 50).get_page(request.GET.get("page"))
    return render(request, "market/ledger.html", {"page": page, "lateness": usual_lateness()})
