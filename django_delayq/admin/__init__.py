"""The admin: pages about delayed tasks on any AdminSite, without a model.

Imported by the admin's autodiscover, and by projects that call `register(site)`; by nothing else of ours.
"""

from django.apps import apps
from django.db.models.signals import post_migrate

from django_delayq.admin.permissions import create_permissions
from django_delayq.admin.site import register
from django_delayq.conf import settings

__all__ = ["register"]

# Django sends post_migrate for apps with models only; the admin's is the one whose content type the rows hang on.
post_migrate.connect(
    create_permissions, sender=apps.get_app_config("admin"), dispatch_uid="django_delayq.admin.permissions"
)

# A DELAYQ that cannot be read is the system check's to report; without one there is nothing to show.
_config = settings.read_config(settings.raw_setting())[0]
if _config and _config.admin.autoregister:
    register()
