"""The page of one sale. Its regions have versions, so that the script replaces only those that changed."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import NoReverseMatch, reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from django_delayq.exceptions import StoreError
from market import sales
from market.forms import BidForm, MoveForm
from market.models import Sale, State


def admin_link(job_id: str) -> str | None:
    """Return the URL of the job's page in Django's admin; None if the admin is not installed."""
    try:
        return reverse("admin:django_delayq_job_detail", args=[job_id])
    except NoReverseMatch:
        return None


def job_context(sale: Sale) -> dict[str, Any]:
    """Return the sale's jobs, or the error: the page must work without Redis too."""
    try:
        found = [
            {"task": task, "id": job.id, "state": job.state, "due": job.due, "link": admin_link(job.id)}
            for task, job in sales.jobs(sale)
        ]
    except StoreError as error:
        return {"jobs": [], "jobs_error": type(error).__name__, "job_missing": False}
    due_task = {State.UPCOMING: "open_sale", State.OPEN: "close_bids"}.get(State(sale.state))
    job_missing = due_task is not None and due_task not in {job["task"] for job in found}
    return {"jobs": found, "jobs_error": None, "job_missing": job_missing}


def sale_context(request: HttpRequest, pk: int) -> dict[str, Any]:
    """Return the template context of the page, with a version for each region."""
    sale = get_object_or_404(Sale.objects.select_related("seller", "winning_bid__bidder"), pk=pk)
    bids = list(sale.bids.select_related("bidder")[:10])
    jobs = job_context(sale)
    user = request.user
    watching = user.is_authenticated and sale.watchers.filter(pk=user.pk).exists()
    best = bids[0].amount if bids else 0
    trace = ".".join(f"{job['task']}{job['state']}{job['due']}" for job in jobs["jobs"])
    return jobs | {
        "sale": sale,
        "bids": bids,
        "bid_count": sale.bids.count(),
        "mine": user.is_authenticated and user.pk == sale.seller_id,
        "watching": watching,
        "bid_form": BidForm(initial={"amount": sale.least_bid}),
        "move_form": MoveForm(initial={"opens_in": sale.closes_at - sale.opens_at}),
        "status_version": f"{sale.state}:{sale.opens_at.timestamp()}.{sale.reminded_for}.{best}",
        # A change before the colon replaces the region even while the player is typing in it.
        "actions_version": f"{sale.state}:{best}.{watching}.{jobs['job_missing']}",
        "bids_version": f"{sale.state}:{best}",
        "jobs_version": f"{sale.state}:{trace}.{jobs['jobs_error']}.{jobs['job_missing']}",
    }


@never_cache
@require_safe
def sale(request: HttpRequest, pk: int) -> HttpResponse:
    """The page of one sale."""
    return render(request, "market/sale.html", sale_context(request, pk))


@never_cache
@require_safe
def live(request: HttpRequest, pk: int) -> HttpResponse:
    """The regions of a sale's page alone, for the script."""
    return render(request, "market/_regions.html", sale_context(request, pk))
