"""Addresses of the figures: `path("delayq/", include("django_delayq.admin.urls"))`.

`metrics` is for Prometheus, `stats.json` for anything else. Who may see the pages of the admin may see them.
"""

from collections.abc import Callable

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from django_delayq.admin.page import admin_store
from django_delayq.admin.permissions import may_view
from django_delayq.exceptions import StoreError
from django_delayq.monitoring.accuracy import Accuracy
from django_delayq.monitoring.figures import NEEDS_PACKAGE, Figures
from django_delayq.monitoring.stats import stats

app_name = "delayq"
_ACCURACY = Accuracy()


def _figures_view(respond: Callable[[Figures], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Return a view of the figures for those who may see the admin's pages; 503 if Redis does not answer."""

    @never_cache
    @require_safe
    def view(request: HttpRequest) -> HttpResponse:
        # Not a redirect to a login: a program asks.
        if not may_view(request):
            raise PermissionDenied
        try:
            return respond(Figures(admin_store(), _ACCURACY))
        except StoreError as error:
            return HttpResponse(f"{error}\n", status=503, content_type="text/plain; charset=utf-8")

    return view


def _metrics(figures: Figures) -> HttpResponse:
    try:
        from django_delayq.monitoring import prometheus
    except ImportError:
        return HttpResponse(NEEDS_PACKAGE, status=501, content_type="text/plain; charset=utf-8")
    return HttpResponse(prometheus.text(figures), content_type=prometheus.CONTENT_TYPE)


def _stats(figures: Figures) -> HttpResponse:
    return JsonResponse(stats(figures))


urlpatterns = [
    path("metrics", _figures_view(_metrics), name="metrics"),
    path("stats.json", _figures_view(_stats), name="stats"),
]
