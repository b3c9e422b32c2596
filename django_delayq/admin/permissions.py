"""Permissions to see the pages, to change jobs, and to see hidden values.

They are rows of `django.contrib.auth` on the content type of the admin's log entries. A content type of this app would
belong to no model, and `remove_stale_contenttypes` would delete it with every grant.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from django.apps import apps as global_apps
from django.core.exceptions import ImproperlyConfigured
from django.db import router
from django.http import HttpRequest
from django.utils.module_loading import import_string

from django_delayq.conf.config import AdminConfig
from django_delayq.conf.settings import get_config

#: Default name -> description in the list of permissions, stored untranslated like Django's own.
_ROWS = {
    "admin.view_delayq": "Can view delayed jobs",
    "admin.manage_delayq": "Can manage delayed jobs",
    "admin.view_delayq_payload": "Can view hidden values of delayed jobs",
}


def allowed(request: HttpRequest, permission: str) -> bool:
    """Return whether the user has a permission, given by name or by the dotted path of a function."""
    if permission.count(".") > 1:
        return bool(_function(permission)(request))
    return request.user.is_active and request.user.has_perm(permission)


def may_view(request: HttpRequest) -> bool:
    """Return whether the user may see any page. Reads nothing from Redis."""
    return allowed(request, get_config().admin.view_permission)


def problems(config: AdminConfig) -> list[str]:
    """Return the errors of permissions that are dotted paths."""
    found = []
    for permission in (config.view_permission, config.manage_permission, config.payload_permission):
        try:
            if permission.count(".") > 1:
                _function(permission)
        except ImproperlyConfigured as error:
            found.append(str(error))
    return found


@cache
def _function(path: str) -> Callable[[HttpRequest], Any]:
    try:
        function = import_string(path)
    except ImportError as error:
        raise ImproperlyConfigured(f"DELAYQ['ADMIN'] names {path!r}, which cannot be imported: {error}") from error
    if not callable(function):
        raise ImproperlyConfigured(f"DELAYQ['ADMIN'] names {path!r}, which is not a function of a request")
    return function  # type: ignore[no-any-return]


def create_permissions(*, using: str, apps: Any = global_apps, **_: Any) -> None:
    """Create the permissions that the settings name; receiver of post_migrate."""
    config = get_config().admin
    if not config.create_permissions:
        return
    try:
        permission, content_type = apps.get_model("auth", "Permission"), apps.get_model("contenttypes", "ContentType")
    except LookupError:
        # A migration backwards, to a state without these models.
        return
    if not router.allow_migrate_model(using, permission):
        return
    kind, _made = content_type.objects.using(using).get_or_create(app_label="admin", model="logentry")
    for name in (config.view_permission, config.manage_permission, config.payload_permission):
        if name in _ROWS:
            permission.objects.using(using).get_or_create(
                content_type=kind, codename=name.partition(".")[2], defaults={"name": _ROWS[name]}
            )
