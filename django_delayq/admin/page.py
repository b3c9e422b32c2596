"""Frame: what stands around every page: the tabs with their counts, and the switches."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.utils import timezone
from django.utils.translation import gettext as _

from django_delayq.admin.timezone import LOCAL, UTC_NAME
from django_delayq.admin.views.elsewhere import other_stores

if TYPE_CHECKING:
    from django_delayq.admin.context import PageContext

#: Seconds between two updates, as the reader may choose.
_INTERVALS = (5, 15, 60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tab:
    """One tab."""

    name: str
    title: str
    url: str
    count: int | None = None
    #: The count is of something that is wrong.
    bad: bool = False


def layout_context(visit: "PageContext", tab: str, *, down: bool) -> dict[str, Any]:
    """Return what the frame's templates need; asks Redis nothing where it is down."""
    here, query = visit.request.path, visit.request.GET.copy()
    query.pop("zone", None)
    others = other_stores()
    panel = visit.url("live", tab) if tab and here == visit.url(tab) and not down else ""
    return {
        "tabs": _tabs(visit, down=down),
        "panel_url": f"{panel}?{query.urlencode()}" if panel and query else panel,
        "intervals": _INTERVALS,
        "other_stores": others,
        "other_aliases": ", ".join(each.alias for each in others),
        # What answers a post has no address to come back to.
        "zones": _zones(visit.zone[0], query.urlencode()) if visit.request.method != "POST" else [],
    }


def _zones(chosen: str, query: str) -> list[tuple[str, str, str, bool]]:
    """Return the choices: title, zone, address, whether it is this one. What the browser has the script knows."""
    browsers = "" if chosen in (LOCAL, UTC_NAME) else chosen
    here = timezone.get_current_timezone_name()
    titles = {LOCAL: (_("Local"), here), UTC_NAME: (_("UTC"), ""), browsers: (_("Browser"), browsers)}
    given = f"{query}&" if query else ""
    return [(*titles[name], f"?{given}zone={name}", name == chosen) for name in titles]


def _tabs(visit: "PageContext", *, down: bool) -> list[Tab]:
    titles = {
        "overview": _("Overview"),
        "pending": _("Pending"),
        "queues": _("Queues"),
        "running": _("Running"),
        "dead": _("Dead"),
        "functions": _("Functions"),
        "processes": _("Processes"),
    }
    counts: dict[str, int] = {}
    if not down:
        now = visit.snapshot
        counts = {"pending": now.scheduled, "queues": len(now.queues), "running": now.claimed, "dead": now.dead}
    return [
        Tab(
            name=name,
            title=title,
            url=visit.url(name),
            count=counts.get(name),
            bad=name == "dead" and bool(counts.get(name)),
        )
        for name, title in titles.items()
    ]
