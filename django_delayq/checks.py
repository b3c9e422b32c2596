"""System checks over the DELAYQ setting alone; they never connect."""

from typing import Any

from django.core.checks import CheckMessage, Error

from django_delayq.conf import given, read_config


def check_settings(**_: Any) -> list[CheckMessage]:
    """Report everything wrong with DELAYQ, each with its cure."""
    problems = read_config(given())[1]
    return [Error(problem.message, hint=problem.hint, id=problem.id) for problem in problems]
