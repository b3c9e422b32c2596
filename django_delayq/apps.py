"""The app: registers system checks and imports tasks. Connects to nothing."""

from django.apps import AppConfig
from django.core.checks import register


class DelayQConfig(AppConfig):
    """The app `django_delayq`, as INSTALLED_APPS names it."""

    name = "django_delayq"
    verbose_name = "Delayed jobs"

    def ready(self) -> None:
        """Register the system checks and import every app's tasks."""
        # Imported here because the app registry must be complete before any tasks module is imported.
        from django_delayq import checks
        from django_delayq.conf import settings
        from django_delayq.task import registry

        register(checks.check_settings)
        register(checks.check_middleware)
        register(checks.check_modules)
        if settings.backends():
            # Its import adds a finder of tasks that were declared for another backend. In a worker, nothing else may
            # import it.
            from django_delayq.backend import django_task  # noqa: F401
        config, _ = settings.read_config(settings.raw_setting())
        # Must be last: a project's `sys.addaudithook` must not see the imports above, which are our own.
        registry.autodiscover(config.tasks.task_modules if config else ())
