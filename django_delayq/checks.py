"""System checks of the DELAYQ setting and of registered tasks. They never connect to Redis."""

from typing import Any

from django.core.checks import CheckMessage, Warning
from django.core.checks.urls import check_url_config

from django_delayq.conf.settings import raw_setting, read_config
from django_delayq.task import registry


def check_settings(**_: Any) -> list[CheckMessage]:
    """Report every mistake in DELAYQ, with its cure."""
    return list(read_config(raw_setting())[1])


def check_modules(**_: Any) -> list[CheckMessage]:
    """Report tasks in modules that a worker may never import, such as views."""
    # Most such modules are imported with the URLs, and checks run in no fixed order.
    check_url_config(None)
    return [
        Warning(
            f"The task {name!r} is in a module that workers do not import by themselves.",
            hint="Move it to tasks.py of an app, or add its module to DELAYQ['TASK_MODULES'].",
            id="delayq.W007",
        )
        for name in registry.late()
    ]
