"""Testing: the queue in a project's tests. For pytest there is the fixture `delayq`."""

from django_delayq.testing.delayq import DelayQ, DelayQMixin
from django_delayq.testing.inline_worker import TaskFailed
from django_delayq.testing.job_views import EnqueuedJob, JobRun

__all__ = ["DelayQ", "DelayQMixin", "JobRun", "EnqueuedJob", "TaskFailed"]
