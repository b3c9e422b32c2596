"""Running: the jobs that workers hold, with how long they are still theirs."""

from django.http import HttpResponse
from django.utils.translation import gettext as _

from django_delayq.admin.context import PageContext
from django_delayq.admin.job_lists import RUNNING
from django_delayq.admin.views import lists


def show(visit: PageContext) -> HttpResponse:
    """Draw the list."""
    return lists.show(visit, RUNNING, title=_("Running tasks"))
