"""Testing: the queue in the hands of a project's tests; for pytest there is a fixture, `delayq`."""

from django_delayq.testing.delayq import DelayQ
from django_delayq.testing.mixin import DelayQMixin
from django_delayq.testing.runner import TaskFailed
from django_delayq.testing.seen import RanJob, SeenJob

__all__ = ["DelayQ", "DelayQMixin", "RanJob", "SeenJob", "TaskFailed"]
