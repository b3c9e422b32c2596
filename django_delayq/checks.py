"""System checks over the DELAYQ setting and the tasks there are; they never connect."""

from typing import Any

from django.core.checks import CheckMessage, Error, Warning
from django.core.checks.urls import check_url_config

from django_delayq.conf.settings import raw_setting, read_config
from django_delayq.task import registry


def check_settings(**_: Any) -> list[CheckMessage]:
    """Report everything wrong with DELAYQ, each with its cure."""
    problems = read_config(raw_setting())[1]
    return [Error(problem.message, hint=problem.hint, id=problem.id) for problem in problems]


def check_modules(**_: Any) -> list[CheckMessage]:
    """Report tasks in modules that no worker need import, such as views."""
    # Checks run in no order, and most such modules come with the URLs.
    check_url_config(None)
    return [
        Warning(
            f"The task {name!r} stands in a module that workers do not import by themselves.",
            hint="Move it to tasks.py of an app, or add its module to DELAYQ['TASK_MODULES'].",
            id="delayq.W007",
        )
        for name in registry.late()
    ]
