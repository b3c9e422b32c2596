"""The app: connects checks and finds tasks; opens nothing."""

from django.apps import AppConfig
from django.core.checks import register


class DelayQConfig(AppConfig):
    """One line in INSTALLED_APPS."""

    name = "django_delayq"
    verbose_name = "Delayed jobs"

    def ready(self) -> None:
        """Register the system checks and import every app's tasks."""
        # Imported here, since models and settings of other apps must be ready before their tasks modules are.
        from django_delayq import checks
        from django_delayq.conf import settings
        from django_delayq.task import registry

        register(checks.check_settings)
        register(checks.check_modules)
        if settings.backends():
            # It knows tasks that were declared for another backend; nobody else need import it in a worker.
            from django_delayq.backend import django_task  # noqa: F401
        config, _ = settings.read_config(settings.raw_setting())
        # Last: an audit hook of the project's would take what we import after it for the doing of jobs.
        registry.autodiscover(config.tasks.task_modules if config else ())
