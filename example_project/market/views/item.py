"""The page of one sale. Its regions carry versions, so that the script exchanges only what changed."""

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
    """The job's page in Django's admin, where there is one."""
    try:
        return reverse("admin:django_delayq_job_detail", args=[job_id])
    except NoReverseMatch:
        return None


def waiting_jobs(sale: Sale) -> dict[str, Any]:
    """The sale's jobs as Redis tells them. A Redis that is away must not take the page with it."""
    try:
        found = [
            {"task": task, "id": job.id, "state": job.state, "due": job.due, "link": admin_link(job.id)}
            for task, job in sales.jobs(sale)
        ]
    except StoreError as error:
        return {"jobs": [], "jobs_error": type(error).__name__, "unplanned": False}
    due_task = {State.UPCOMING: "open_sale", State.OPEN: "close_bids"}.get(State(sale.state))
    unplanned = due_task is not None and due_task not in {job["task"] for job in found}
    return {"jobs": found, "jobs_error": None, "unplanned": unplanned}


def describe(request: HttpRequest, pk: int) -> dict[str, Any]:
    """Everything the page shows, and a version for each of its regions."""
    sale = get_object_or_404(Sale.objects.select_related("seller", "winning_bid__bidder"), pk=pk)
    bids = list(sale.bids.select_related("bidder")[:10])
    jobs = waiting_jobs(sale)
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
        # What stands before the colon is what a player in the middle of typing must still be told of.
        "deeds_version": f"{sale.state}:{best}.{watching}.{jobs['unplanned']}",
        "bids_version": f"{sale.state}:{best}",
        "jobs_version": f"{sale.state}:{trace}.{jobs['jobs_error']}.{jobs['unplanned']}",
    }


@never_cache
@require_safe
def sale(request: HttpRequest, pk: int) -> HttpResponse:
    """The page of one sale."""
    return render(request, "market/sale.html", describe(request, pk))


@never_cache
@require_safe
def live(request: HttpRequest, pk: int) -> HttpResponse:
    """Its regions alone."""
    return render(request, "market/_regions.html", describe(request, pk))
