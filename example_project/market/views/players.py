"""Pages about the player: the letter box, and signing in without a password where the demo allows it."""

from django.conf import settings
from django.contrib.auth import get_user_model, login
from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render, resolve_url
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe


@never_cache
@login_required
@require_safe
def letters(request: HttpRequest) -> HttpResponse:
    """The player's notices. Seen is read."""
    notices = request.user.notices.select_related("sale__seller", "sale__winning_bid__bidder")
    page = Paginator(notices, 30).get_page(request.GET.get("page"))
    page.object_list = list(page.object_list)
    request.user.notices.filter(pk__in=[notice.pk for notice in page.object_list]).update(read=True)
    return render(request, "market/letters.html", {"page": page})


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
