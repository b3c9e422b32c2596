"""Pages for two failures: Redis does not answer, and an address that takes only POST. They read nothing from Redis."""

from collections.abc import Sequence

from django.http import HttpResponse, HttpResponseNotAllowed
from django.utils.translation import gettext

from django_delayq.admin.page import PageContext
from django_delayq.exceptions import StoreAuthError, StoreError


def show_unavailable(page: PageContext, error: StoreError) -> HttpResponse:
    """Show the error with status 503."""
    return page.render(
        "unavailable.html",
        tab="",
        title=gettext("Redis does not answer"),
        status=503,
        error=str(error),
        auth_failed=isinstance(error, StoreAuthError),
        redis_url=page.store.config.redis.display_url,
        redis_down=True,
        retry_url=page.request.get_full_path() if page.request.method == "GET" else page.url("overview"),
    ).render()


def show_not_allowed(page: PageContext, methods: Sequence[str]) -> HttpResponse:
    """Return status 405, for a GET with a page that says that nothing was done.

    After a session ended, the login page leads to the address of an action by GET, and the posted form is lost.
    """
    refused = HttpResponseNotAllowed(methods)
    if page.request.method != "GET":
        return refused
    title = gettext("Nothing was done")
    response = page.render("not_allowed.html", tab="", title=title, status=405, redis_down=True).render()
    response["Allow"] = refused["Allow"]
    return response
