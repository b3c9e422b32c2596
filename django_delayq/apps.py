"""The app: registers system checks and imports tasks. Connects to nothing."""

import multiprocessing
import os
import sys

from django.apps import AppConfig
from django.core.checks import register
from django.utils.autoreload import DJANGO_AUTORELOAD_ENV
from django.utils.translation import gettext_lazy


class DelayQConfig(AppConfig):
    """The app `django_delayq`, as INSTALLED_APPS names it."""

    name = "django_delayq"
    verbose_name = gettext_lazy("Delayed jobs")

    def ready(self) -> None:
        """Register the system checks and import every app's tasks."""
        # Imported here because the app registry must be complete before any tasks module is imported.
        from django_delayq import checks
        from django_delayq.conf import settings
        from django_delayq.task import registry

        register(checks.check_settings)
        register(checks.check_redis)
        register(checks.check_policies)
        register(checks.check_middleware)
        register(checks.check_modules)
        register(checks.check_recurring)
        if settings.backends():
            # Its import adds a finder of tasks that were declared for another backend. In a worker, nothing else may
            # import it.
            from django_delayq.backend import django_task  # noqa: F401
        config, _ = settings.read_config(settings.raw_setting())
        # Must be last: a project's `sys.addaudithook` must not see the imports above, which are our own.
        registry.autodiscover(config.tasks.task_modules if config else ())
        if not config or not _is_in_runserver():
            return
        # Not at the top: web processes do not load the code of workers, nor what only runserver needs.
        if config.worker.run_in_runserver:
            from django_delayq.management.runserver import JobsInRunserver

            JobsInRunserver().start()
        else:
            from django_delayq.monitoring.reminder import Reminder

            Reminder().start()


def _is_in_runserver() -> bool:
    """Return whether this is the process that the reloader of runserver starts again and again."""
    if os.environ.get(DJANGO_AUTORELOAD_ENV) != "true" or sys.argv[1:2] != ["runserver"]:
        return False
    # The process of a recovered job has the same arguments and environment.
    return multiprocessing.parent_process() is None
