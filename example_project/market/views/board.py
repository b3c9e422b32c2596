"""Lists: the front page, one shelf of sales, and the run log."""

from datetime import timedelta
from statistics import median
from typing import Any

from django.core.paginator import Paginator
from django.db.models import Max, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from market.models import Sale, State, TaskRun

#: name -> (title, filter, order, number of sales on the front page, text of an empty shelf)
SHELVES: dict[str, tuple[str, dict[str, Any], tuple[str, ...], int, str]] = {
    "open": ("Open for bids", {"state": State.OPEN}, ("closes_at",), 6, "Nothing is open at the moment."),
    "upcoming": ("Opening soon", {"state": State.UPCOMING}, ("opens_at",), 9, "Nothing is waiting to open."),
    "closed": ("Closed", {"state": State.CLOSED}, ("-closed_at",), 6, "No sale has closed yet."),
}


def on_shelf(filters: dict[str, Any], order: tuple[str, ...]) -> QuerySet[Sale]:
    """Return sales with everything that a card shows, in one query."""
    sales = Sale.objects.filter(**filters).order_by(*order, "pk")
    return sales.select_related("seller", "winning_bid__bidder").annotate(highest=Max("bids__amount"))


def shelves() -> list[dict[str, Any]]:
    """Return the shelves of the front page. A shelf's version changes when one of its cards changes."""
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


def median_lateness() -> timedelta | None:
    """Return the median lateness of the last hundred first attempts; None before the first."""
    runs = TaskRun.objects.filter(attempt=1)[:100]
    return median(run.lateness for run in runs) if runs else None


@never_cache
@require_safe
def market(request: HttpRequest) -> HttpResponse:
    """The front page."""
    return render(request, "market/market.html", {"shelves": shelves(), "lateness": median_lateness()})


@never_cache
@require_safe
def live(request: HttpRequest) -> HttpResponse:
    """The shelves of the front page alone, for the script that replaces those that changed."""
    return render(request, "market/_shelves.html", {"shelves": shelves()})


@never_cache
@require_safe
def shelf(request: HttpRequest, which: str) -> HttpResponse:
    """All sales of one shelf, or all sales of the signed-in player."""
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
def run_log(request: HttpRequest) -> HttpResponse:
    """Every run of a task with its lateness, newest first."""
    page = Paginator(TaskRun.objects.select_related("sale"), 50).get_page(request.GET.get("page"))
    return render(request, "market/run_log.html", {"page": page, "lateness": median_lateness()})
