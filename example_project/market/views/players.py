"""The player's pages: the letter box, and sign-in without a password in the demo."""

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import get_user_model, login
from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render, resolve_url
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from django_delayq.exceptions import StoreError
from market.tasks import count_gold

try:
    from django.tasks import TaskResult
    from django.tasks.exceptions import TaskResultDoesNotExist
except ImportError:  # Django 5.2 has no tasks; django-tasks is their backport
    from django_tasks import TaskResult
    from django_tasks.exceptions import TaskResultDoesNotExist


@never_cache
@login_required
@require_safe
def letters(request: HttpRequest) -> HttpResponse:
    """The player's notices. Showing one marks it as read."""
    notices = request.user.notices.select_related("sale__seller", "sale__winning_bid__bidder")
    page = Paginator(notices, 30).get_page(request.GET.get("page"))
    page.object_list = list(page.object_list)
    request.user.notices.filter(pk__in=[notice.pk for notice in page.object_list]).update(read=True)
    return render(request, "market/letters.html", {"page": page, "count": gold_count(request)})


def gold_count(request: HttpRequest) -> TaskResult | None:
    """Return the result of the player's last count; None without one, or if Redis is unavailable."""
    try:
        return count_gold.get_result(request.session["count"])
    except (KeyError, TaskResultDoesNotExist, StoreError):
        return None


@login_required
@require_POST
def count(request: HttpRequest) -> HttpResponse:
    """Enqueue a count of the player's gold by Django's own task; the letter box shows its result."""
    try:
        request.session["count"] = count_gold.enqueue(request.user.pk).id
    except StoreError:
        messages.error(request, "The clerk is away; try again in a moment.")
    return redirect("letters")


@require_POST
def play_as(request: HttpRequest) -> HttpResponse:
    """Sign in as one of the demo's players."""
    name = request.POST.get("player", "")
    if name not in settings.MARKET_DEMO_PLAYERS:
        raise Http404("no such demo player")
    player = get_object_or_404(get_user_model(), username=name)
    login(request, player, backend="django.contrib.auth.backends.ModelBackend")
    following = request.POST.get("next", "")
    allowed = url_has_allowed_host_and_scheme(following, {request.get_host()}, require_https=request.is_secure())
    return redirect(following if allowed else resolve_url(settings.LOGIN_REDIRECT_URL))
