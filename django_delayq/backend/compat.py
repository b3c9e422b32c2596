"""Compat: Django's tasks framework, or its backport for Django 5.2; the only file that imports either."""

from typing import Any

try:
    from django.tasks import (
        TaskContext,
        TaskResult,
        TaskResultStatus,
        exceptions,
        task_backends,
    )
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskError
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json
except ImportError:
    try:
        from django_tasks import (  # type: ignore[no-redef,assignment]
            TaskContext,
            TaskResult,
            TaskResultStatus,
            exceptions,
            task_backends,
        )
        from django_tasks.backends.base import BaseTaskBackend  # type: ignore[assignment]
        from django_tasks.base import Task, TaskError  # type: ignore[assignment]
        from django_tasks.signals import task_enqueued, task_finished, task_started
        from django_tasks.utils import normalize_json
    except ImportError as error:
        raise ImportError(
            "Django before 6.0 has no tasks framework: pip install 'django-delayq[compat]', which brings the backport, "
            "and add 'django_tasks' to INSTALLED_APPS"
        ) from error

#: Releases of the backport up to 0.12 have another name for it.
InvalidTask: Any = getattr(exceptions, "InvalidTask", None) or getattr(exceptions, "InvalidTaskError", None)
TaskResultDoesNotExist: Any = exceptions.TaskResultDoesNotExist

__all__ = [
    "BaseTaskBackend",
    "InvalidTask",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "normalize_json",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]
