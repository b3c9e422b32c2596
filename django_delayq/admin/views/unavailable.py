"""Unavailable: the page there is while Redis does not answer. It asks Redis nothing."""

from django.http import HttpResponse
from django.utils.translation import gettext

from django_delayq.admin.context import PageContext
from django_delayq.exceptions import StoreAuthError, StoreError


def show(visit: PageContext, error: StoreError) -> HttpResponse:
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
