"""Entry: how the pages get onto an AdminSite without a model: a stand-in for one, its admin class, and the URLs."""

from collections.abc import Callable
from functools import partial
from typing import Any

from django.apps import apps
from django.contrib import admin
from django.contrib.admin import AdminSite, ModelAdmin
from django.core.checks import CheckMessage, Error
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase
from django.template.response import SimpleTemplateResponse
from django.urls import URLPattern, path, register_converter, reverse_lazy
from django.urls.converters import StringConverter
from django.utils.translation import gettext_lazy

from django_delayq.admin import timezone as zone
from django_delayq.admin.filters import from_url_name, url_name
from django_delayq.admin.page import PageContext
from django_delayq.admin.permissions import may_view, problems
from django_delayq.admin.views import action, dead, export, lists, live, overview, processes, queues, unavailable
from django_delayq.admin.views import job as detail
from django_delayq.admin.views import tasks as functions
from django_delayq.conf.settings import raw_setting, read_config
from django_delayq.exceptions import StoreError

Show = Callable[..., HttpResponseBase]
_LOOK, _ACT = ("GET", "HEAD"), ("POST",)


class QueueConverter(StringConverter):
    """The part of a path that is a queue's name, whatever letters it has."""

    def to_python(self, value: str) -> str:
        """Return the name; ValueError means 404."""
        return from_url_name(value)

    def to_url(self, value: str) -> str:
        """Return the name as it stands in a path."""
        return url_name(value)


register_converter(QueueConverter, "delayq_queue")


class _Meta:
    """What the admin asks of a model's options."""

    app_label = "django_delayq"
    object_name = "Queue"
    model_name = "queue"
    label = "django_delayq.Queue"
    label_lower = "django_delayq.queue"
    verbose_name = gettext_lazy("delayed task")
    verbose_name_plural = gettext_lazy("delayed tasks")
    abstract = swapped = is_composite_pk = False
    concrete_model = None

    @property
    def app_config(self) -> Any:
        return apps.get_app_config(self.app_label)


class DelayQueue:
    """Stands where the admin expects a model; there is no table."""

    _meta = _Meta()


#: Pages that live update can replace a part of, by their tab.
_PANELS = {
    "overview": overview.show,
    "pending": lists.show_pending,
    "queues": queues.show,
    "running": lists.show_running,
    "dead": dead.show,
    "functions": functions.show,
    "processes": processes.show,
}
#: Route, name, what shows it, and the methods it takes.
_PAGES: tuple[tuple[str, str, Show, tuple[str, ...]], ...] = (
    ("", "queue_changelist", overview.show, _LOOK),
    ("pending/", "pending", lists.show_pending, _LOOK),
    ("queues/", "queues", queues.show, _LOOK),
    ("queues/<delayq_queue:queue>/", "queue_detail", lists.show_ready, _LOOK),
    ("running/", "running", lists.show_running, _LOOK),
    ("dead/", "dead", dead.show, _LOOK),
    # Posting to this, and to an export, reveals what is hidden.
    ("task/<str:text_id>/", "task_detail", detail.show, _LOOK + _ACT),
    ("functions/", "functions", functions.show, _LOOK),
    ("processes/", "processes", processes.show, _LOOK),
    ("action/", "action", action.show, _ACT),
    ("live/<slug:panel>/", "live", partial(live.show, _PANELS), _LOOK),
    ("export/<slug:place>/", "export", export.show, _LOOK + _ACT),
)


class QueueAdmin(ModelAdmin):  # type: ignore[type-arg]
    """The entry on the admin's index, and the pages behind it."""

    def check(self, **_: Any) -> list[CheckMessage]:
        """Report what only importing can tell of the settings; there are no fields to check."""
        hint = "Give 'app_label.codename', or the dotted path of a function that takes the request."
        # What else is wrong with DELAYQ is told by the check of the whole of it.
        config, _problems = read_config(raw_setting())
        return [Error(each, hint=hint, id="delayq.E007") for each in (problems(config.admin) if config else ())]

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Say whether the index shows the app."""
        return may_view(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Say whether the index shows the entry."""
        return may_view(request)

    def has_add_permission(self, request: HttpRequest, *_: Any) -> bool:
        """Say no: tasks are not made in a form."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Say no: the index shall offer to look; what may be done is on the pages."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Say no, likewise."""
        return False

    def get_urls(self) -> list[URLPattern]:
        """Return our URLs only: there is nothing to add or to change."""
        return [
            path(route, self._guarded(show, methods), name=f"django_delayq_{name}")
            for route, name, show, methods in _PAGES
        ]

    def _guarded(self, show: Show, methods: tuple[str, ...]) -> Callable[..., HttpResponseBase]:
        site = self.admin_site

        def view(request: HttpRequest, **captured: Any) -> HttpResponseBase:
            if not may_view(request):
                raise PermissionDenied
            visit = PageContext.of(request, site)
            if request.method not in methods:
                return unavailable.show_not_allowed(visit, methods)
            if methods == _ACT and not visit.may_manage:
                raise PermissionDenied
            if zone.is_switch_request(request):
                return zone.save(request)
            try:
                response = show(visit, *captured.values())
                # Here, since a template too may be what first asks Redis.
                return response.render() if isinstance(response, SimpleTemplateResponse) else response
            except StoreError as error:
                return unavailable.show_unavailable(visit, error)

        def entered(request: HttpRequest, **captured: Any) -> HttpResponseBase:
            # For whoever looks later, the login page included, which site this is.
            request.current_app = site.name
            return site.admin_view(view)(request, **captured)

        entered.login_url = reverse_lazy("admin:login", current_app=site.name)  # type: ignore[attr-defined]
        return entered


def register(site: AdminSite | None = None) -> None:
    """Put the pages on an AdminSite, `django.contrib.admin.site` by default; a second time changes nothing."""
    site = site or admin.site
    if not site.is_registered(DelayQueue):  # type: ignore[arg-type]
        site.register([DelayQueue], QueueAdmin)
