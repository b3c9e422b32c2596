"""Unavailable: the page there is while Redis does not answer. It asks Redis nothing."""

from collections.abc import Sequence

from django.http import HttpResponse, HttpResponseNotAllowed
from django.utils.translation import gettext

from django_delayq.admin.page import PageContext
from django_delayq.exceptions import StoreAuthError, StoreError


def show_unavailable(visit: PageContext, error: StoreError) -> HttpResponse:
    """Say what is wrong, with status 503."""
    page = visit.render(
        "unavailable.html",
        tab="",
        title=gettext("Redis does not answer"),
        status=503,
        error=str(error),
        refused=isinstance(error, StoreAuthError),
        place=visit.store.config.redis.display_url,
        down=True,
        again=visit.request.get_full_path() if visit.request.method == "GET" else visit.url("overview"),
    )
    return page.render()


def show_not_allowed(visit: PageContext, methods: Sequence[str]) -> HttpResponse:
    """Say that nothing was done, with status 405.

    After a session ended, the login page leads back to the address of an action, and what was posted there is lost.
    """
    refused = HttpResponseNotAllowed(methods)
    if visit.request.method != "GET":
        return refused
    page = visit.render("not_allowed.html", tab="", title=gettext("Nothing was done"), status=405, down=True).render()
    page["Allow"] = refused["Allow"]
    return page
