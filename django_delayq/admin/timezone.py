"""The time zone of the pages: the person's choice, kept in a cookie; it works without JavaScript and sessions."""

import re
from datetime import UTC, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils import timezone
from django.utils.encoding import escape_uri_path
from django.utils.http import urlencode

LOCAL, UTC_NAME = "local", "utc"
_COOKIE = "delayq_zone"
_YEAR = 365 * 86_400
#: A name of the time zone database, which is what browsers report.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+-]{0,30}(/[A-Za-z0-9_+-]{1,30}){0,2}")


def zone_of(request: HttpRequest) -> tuple[str, tzinfo]:
    """Return the choice and its time zone: `local` (Django's current zone), `utc`, or a zone by its name."""
    name = request.COOKIES.get(_COOKIE, "")
    if name == UTC_NAME:
        return name, UTC
    found = _named(name)
    return (name, found) if found else (LOCAL, timezone.get_current_timezone())


def is_switch_request(request: HttpRequest) -> bool:
    """Return whether the person chose a zone with this request."""
    name = request.GET.get("zone", "")
    return name in (LOCAL, UTC_NAME) or _named(name) is not None


def save(request: HttpRequest) -> HttpResponse:
    """Save the choice of this request in the cookie, and redirect to the same page."""
    query = request.GET.copy()
    name = str(query.pop("zone")[-1])
    path = escape_uri_path(request.path)
    address = f"{path}?{urlencode(query, doseq=True)}" if query else path
    response = HttpResponseRedirect(address)
    response.set_cookie(_COOKIE, name, max_age=_YEAR, httponly=True, samesite="Lax", secure=request.is_secure())
    return response


def _named(name: str) -> tzinfo | None:
    if not _NAME.fullmatch(name):
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        # OSError: the name of a folder in the database, such as "Europe".
        return None
