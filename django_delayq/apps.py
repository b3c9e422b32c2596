"""The app: connects checks and finds tasks; opens nothing."""

from django.apps import AppConfig
from django.core.checks import register


class DelayQConfig(AppConfig):
    """One line in INSTALLED_APPS."""

    name = "django_delayq"
    verbose_name = "Delayed tasks"

    def ready(self) -> None:
        """Register the system checks and import every app's tasks."""
        # Imported here, since models and settings of other apps must be ready before their tasks modules are.
        from django_delayq import checks, conf, registry

        register(checks.check_settings)
        config, _ = conf.read_config(conf.given())
        registry.autodiscover(config.tasks.task_modules if config else ())
