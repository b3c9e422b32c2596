"""Not allowed: what a page answers to a method that it does not take. It asks Redis nothing."""

from collections.abc import Sequence

from django.http import HttpResponse, HttpResponseNotAllowed
from django.utils.translation import gettext

from django_delayq.admin.context import PageContext


def show(visit: PageContext, methods: Sequence[str]) -> HttpResponse:
    """Say that nothing was done, with status 405.

    After a session ended, the login page leads back to the address of an action, and what was posted there is lost.
    """
    refused = HttpResponseNotAllowed(methods)
    if visit.request.method != "GET":
        return refused
    page = visit.render("not_allowed.html", tab="", title=gettext("Nothing was done"), status=405, down=True).render()
    page["Allow"] = refused["Allow"]
    return page
