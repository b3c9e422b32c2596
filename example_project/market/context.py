"""The template context of every page: the server's time, and the number of unread letters."""

from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.utils import timezone

from market.sales import reminder_lead


def market(request: HttpRequest) -> dict[str, Any]:
    """Return the context of a page; empty for the admin, which does not use it."""
    if request.path.startswith("/admin/"):
        return {}
    unread = request.user.notices.filter(read=False).count() if request.user.is_authenticated else 0
    return {
        "now": timezone.now(),
        "unread": unread,
        "reminder_lead": reminder_lead(),
        "demo_players": settings.MARKET_DEMO_PLAYERS,
    }
