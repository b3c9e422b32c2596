"""System checks of the DELAYQ setting and of registered tasks. They never connect to Redis."""

from contextlib import suppress
from typing import Any

from django.core.checks import CheckMessage, Error, Warning
from django.core.checks.urls import check_url_config
from django.core.exceptions import ImproperlyConfigured

from django_delayq.conf.settings import get_config, raw_setting, read_config, separate_aliases
from django_delayq.middleware.chain import problem_of
from django_delayq.task import registry


def check_settings(**_: Any) -> list[CheckMessage]:
    """Report every mistake in DELAYQ, with its cure."""
    return list(read_config(raw_setting())[1])


def check_middleware(**_: Any) -> list[CheckMessage]:
    """Report every entry of MIDDLEWARE that names no middleware."""
    paths: dict[str, None] = {}
    for backend in (None, *separate_aliases()):
        with suppress(ImproperlyConfigured):
            # The other checks report settings that cannot be read.
            paths |= dict.fromkeys(get_config(backend).tasks.middleware)
    return [
        Error(
            f"DELAYQ['MIDDLEWARE'] names {path!r:.200}, {problem}.",
            hint="docs/middleware.md shows what a middleware looks like.",
            id="delayq.E020",
        )
        for path in paths
        if (problem := problem_of(path))
    ]


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
