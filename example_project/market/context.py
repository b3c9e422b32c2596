"""What every page of the market knows: the time here, and whether letters wait."""

from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.utils import timezone

from market.sales import reminder_lead


def market(request: HttpRequest) -> dict[str, Any]:
    """Context of every page; the admin's pages, which use none of it, pay nothing."""
    if request.path.startswith("/admin/"):
        return {}
    unread = request.user.notices.filter(read=False).count() if request.user.is_authenticated else 0
    return {
        "now": timezone.now(),
        "unread": unread,
        "reminder_lead": reminder_lead(),
        "demo_players": settings.MARKET_DEMO_PLAYERS,
    }
