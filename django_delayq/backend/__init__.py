"""Backend: `DelayQBackend` for TASKS, Django's tasks framework."""

from django_delayq.backend.backend import DelayQBackend

__all__ = ["DelayQBackend"]
