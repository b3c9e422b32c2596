"""Compat: Django's tasks framework or its backport, as a project would import it; no other test file names either."""

try:
    from django.tasks import TaskResultStatus, default_task_backend, task, task_backends
    from django.tasks import exceptions as exceptions
    from django.tasks.base import TaskError, TaskResult
    from django.tasks.signals import task_enqueued, task_finished, task_started

    NAME = "django.tasks"
except ImportError:
    from django_tasks import TaskResultStatus, default_task_backend, task, task_backends
    from django_tasks import exceptions as exceptions
    from django_tasks.base import TaskError, TaskResult
    from django_tasks.signals import task_enqueued, task_finished, task_started

    NAME = "django_tasks"

#: A backend that runs tasks in the process that enqueues them.
IMMEDIATE = f"{NAME}.backends.immediate.ImmediateBackend"
InvalidTask = getattr(exceptions, "InvalidTask", None) or exceptions.InvalidTaskError
InvalidTaskBackend = getattr(exceptions, "InvalidTaskBackend", None) or exceptions.InvalidTaskBackendError

__all__ = [
    "IMMEDIATE",
    "NAME",
    "InvalidTask",
    "InvalidTaskBackend",
    "TaskError",
    "TaskResult",
    "TaskResultStatus",
    "default_task_backend",
    "exceptions",
    "task",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]
