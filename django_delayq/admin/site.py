"""Registers the pages on an AdminSite: a substitute for a model, its admin class, and the URLs."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from time import monotonic
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

from django_delayq import runtime
from django_delayq.admin import timezone as zone
from django_delayq.admin.actions import view as action
from django_delayq.admin.actions.session import unfinished
from django_delayq.admin.lists.filters import from_url_name, url_name
from django_delayq.admin.page import PageContext
from django_delayq.admin.permissions import may_view, problems
from django_delayq.admin.views import (
    export,
    failed,
    finished,
    lists,
    live,
    search,
    task,
    tasks,
    unavailable,
)
from django_delayq.admin.views import job as detail
from django_delayq.admin.views.overview import coming, overview
from django_delayq.admin.views.processes import processes, servers
from django_delayq.admin.views.queues import limits, queues, tenants
from django_delayq.admin.views.schedules import calendar, schedule, schedules
from django_delayq.conf.settings import raw_setting, read_config
from django_delayq.exceptions import StoreError
from django_delayq.store.nodes.deadline import call_until

View = Callable[..., HttpResponseBase]
_READ, _WRITE = ("GET", "HEAD"), ("POST",)


class QueueConverter(StringConverter):
    """A queue's name as part of a path, with any characters."""

    def to_python(self, value: str) -> str:
        """Return the name; a ValueError becomes a 404."""
        return from_url_name(value)

    def to_url(self, value: str) -> str:
        """Return the name as part of a path."""
        return url_name(value)


register_converter(QueueConverter, "delayq_queue")


class _Meta:
    """The model options that the admin reads."""

    app_label = "django_delayq"
    object_name = "Queue"
    model_name = "queue"
    label = "django_delayq.Queue"
    label_lower = "django_delayq.queue"
    verbose_name = gettext_lazy("delayed job")
    verbose_name_plural = gettext_lazy("delayed jobs")
    abstract = swapped = is_composite_pk = False
    concrete_model = None

    @property
    def app_config(self) -> Any:
        return apps.get_app_config(self.app_label)


class DelayQueue:
    """A substitute for the model that the admin expects; it has no table."""

    _meta = _Meta()


#: Tab -> view, for the pages with live update.
_PANELS = {
    "overview": overview.show,
    "scheduled": lists.show_scheduled,
    "queues": queues.show,
    "limits": limits.show,
    "running": lists.show_running,
    "finished": finished.show,
    "failed": failed.show,
    "recurring": schedules.show,
    "tasks": tasks.show,
    "processes": processes.show,
    "servers": servers.show,
}
#: Route, name, view, allowed methods.
_PAGES: tuple[tuple[str, str, View, tuple[str, ...]], ...] = (
    ("", "queue_changelist", overview.show, _READ),
    ("coming/", "coming", coming.show, _READ),
    ("scheduled/", "scheduled", lists.show_scheduled, _READ),
    ("queues/", "queues", queues.show, _READ),
    ("queues/<delayq_queue:queue>/", "queue_detail", lists.show_ready, _READ),
    ("queues/<delayq_queue:queue>/tenants/", "queue_tenants", tenants.show, _READ),
    ("limits/", "limits", limits.show, _READ),
    ("running/", "running", lists.show_running, _READ),
    ("finished/", "finished", finished.show, _READ),
    ("failed/", "failed", failed.show, _READ),
    # A POST to a job's page or to an export reveals hidden values.
    ("job/<str:text_id>/", "job_detail", detail.show, _READ + _WRITE),
    ("recurring/", "recurring", schedules.show, _READ),
    ("recurring/calendar/", "recurring_calendar", calendar.show, _READ),
    # As for a job.
    ("recurring/<str:text_id>/", "recurring_schedule", schedule.show, _READ + _WRITE),
    ("tasks/", "tasks", tasks.show, _READ),
    ("tasks/<delayq_queue:task>/", "task_detail", task.show, _READ),
    ("processes/", "processes", processes.show, _READ),
    ("servers/", "servers", servers.show, _READ),
    ("search/", "search", search.show, _READ),
    # A GET shows what a POST would do.
    ("action/", "action", action.show, _READ + _WRITE),
    ("live/<slug:panel>/", "live", partial(live.show, _PANELS), _READ),
    ("export/<slug:list_name>/", "export", export.show, _READ + _WRITE),
)


class QueueAdmin(ModelAdmin):  # type: ignore[type-arg]
    """The entry on the admin's index, and its pages."""

    def check(self, **_: Any) -> list[CheckMessage]:
        """Report permission functions that cannot be imported; there are no fields to check."""
        hint = "Give 'app_label.codename', or the dotted path of a function that takes the request."
        # The check of DELAYQ reports all other errors in it.
        config, _problems = read_config(raw_setting())
        return [Error(each, hint=hint, id="delayq.E007") for each in (problems(config.admin) if config else ())]

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Return whether the index shows the app."""
        return may_view(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return whether the index shows the entry."""
        return may_view(request)

    def has_add_permission(self, request: HttpRequest, *_: Any) -> bool:
        """Always False: no form creates jobs."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Always False: the index offers a link to view; the pages offer the actions."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Always False: jobs are not deleted through ModelAdmin."""
        return False

    def get_urls(self) -> list[URLPattern]:
        """Return the URLs of the pages, without those to add or change an object."""
        return [
            path(route, self._checked(show, methods), name=f"django_delayq_{name}")
            for route, name, show, methods in _PAGES
        ]

    def _checked(self, show: View, methods: tuple[str, ...]) -> Callable[..., HttpResponseBase]:
        site = self.admin_site

        def view(request: HttpRequest, **captured: Any) -> HttpResponseBase:
            if not may_view(request):
                raise PermissionDenied
            page, is_action = PageContext.of(request, site), show is action.show
            # After the login of a person whose session had ended, an action's address names nothing to do.
            if request.method not in methods or (is_action and request.method in _READ and not request.GET):
                return unavailable.show_not_allowed(page, _WRITE if is_action else methods)
            if is_action and not page.may_manage:
                raise PermissionDenied
            if page.may_manage and methods == _READ:
                page = replace(page, unfinished=unfinished(request))
            if zone.is_switch_request(request):
                return zone.save(request)
            try:
                # An action has bounds of its own, and says how far it came.
                acts = is_action and request.method == "POST"
                with call_until(0.0 if acts else monotonic() + runtime.current().bounds.page_seconds):
                    response = show(page, *captured.values())
                    # Rendered here, because a template may be the first to read from Redis.
                    return response.render() if isinstance(response, SimpleTemplateResponse) else response
            except StoreError as error:
                return unavailable.show_unavailable(page, error)

        def site_view(request: HttpRequest, **captured: Any) -> HttpResponseBase:
            # Code that reverses URLs later, the login page included, needs the site's name.
            request.current_app = site.name
            return site.admin_view(view)(request, **captured)

        site_view.login_url = reverse_lazy("admin:login", current_app=site.name)  # type: ignore[attr-defined]
        return site_view


def register(site: AdminSite | None = None) -> None:
    """Register the pages on an AdminSite, by default `django.contrib.admin.site`. Idempotent."""
    site = site or admin.site
    if not site.is_registered(DelayQueue):  # type: ignore[arg-type]
        site.register([DelayQueue], QueueAdmin)
