"""Pending: the jobs that wait for their time, soonest first."""

from django.http import HttpResponse
from django.utils.translation import gettext as _

from django_delayq.admin.context import PageContext
from django_delayq.admin.job_lists import PENDING
from django_delayq.admin.views import lists


def show(visit: PageContext) -> HttpResponse:
    """Draw the list."""
    spans = {
        "overdue": _("overdue"),
        "15m": _("next 15 min"),
        "1h": _("next hour"),
        "24h": _("next 24 h"),
        "7d": _("next 7 days"),
    }
    return lists.show(visit, PENDING, title=_("Pending tasks"), spans=spans, span_label=_("Due"))
