"""Traces: the middleware's path, and a task that the tests of traces run."""

from typing import Any

from django_delayq import RetryPolicy
from django_delayq.task import registry
from django_delayq.task.task import Task

PATH = "django_delayq.middleware.opentelemetry.OpenTelemetryMiddleware"


def task_of(func: Any, name: str = "shop.tasks.play") -> Task[Any, Any]:
    """Register a function as a task with two attempts."""
    retry = RetryPolicy(max_attempts=2, base=0.01, cap=0.01)
    task: Task[Any, Any] = Task(func=func, name=name, queue="mail", retry=retry)
    registry._tasks[task.name] = task
    return task
