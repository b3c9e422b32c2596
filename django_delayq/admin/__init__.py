"""The admin: pages about delayed jobs on any AdminSite, without a model.

Only the admin's autodiscover and projects that call `register(site)` import it; nothing else in this package does.
"""

from django.apps import apps
from django.db.models.signals import post_migrate

from django_delayq.admin.permissions import create_permissions
from django_delayq.admin.site import register
from django_delayq.conf import settings

__all__ = ["register"]

# Django sends post_migrate only for apps with models; the permissions use a content type of the admin app.
post_migrate.connect(
    create_permissions, sender=apps.get_app_config("admin"), dispatch_uid="django_delayq.admin.permissions"
)

# The system check reports a DELAYQ that cannot be read; without settings there is nothing to show.
_config = settings.read_config(settings.raw_setting())[0]
if _config and _config.admin.autoregister:
    register()
