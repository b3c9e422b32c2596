"""TaskRun: one row for each run of a task, written by its worker. It proves that nothing ran early."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from django.db import models
from django.utils import timezone

from django_delayq import RetryLater, current_job


class RunOutcome(models.TextChoices):
    NONE = "", "Not ended"
    DONE = "done", "Done"
    LATER = "later", "Put off"
    FAILED = "failed", "Failed"


class TaskRun(models.Model):
    """One run of a job: its due time, start, end and outcome. A killed run has no end."""

    job_id = models.CharField(max_length=64, db_index=True)
    task = models.CharField(max_length=60)
    #: No database constraint: the run stays as evidence after its sale is deleted.
    sale = models.ForeignKey("market.Sale", models.DO_NOTHING, null=True, db_constraint=False, related_name="+")
    subject = models.CharField(max_length=60, blank=True)
    attempt = models.PositiveSmallIntegerField()
    recovered = models.BooleanField(default=False, help_text="The previous attempt ended in a crash.")
    due = models.DateTimeField(help_text="To the millisecond.")
    started = models.DateTimeField()
    ended = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=6, choices=RunOutcome.choices, default=RunOutcome.NONE, blank=True)
    error = models.CharField(max_length=200, blank=True)
    process = models.PositiveIntegerField()

    class Meta:
        ordering = ("-pk",)
        verbose_name_plural = "task runs"

    def __str__(self) -> str:
        return f"{self.task} {self.job_id}, attempt {self.attempt}"

    @property
    def lateness(self) -> timedelta:
        """Return how long after its due time the run started; a negative lateness would be a bug."""
        return self.started - self.due


@contextmanager
def log_run(task: str, *, sale_id: int | None = None, subject: str = "") -> Iterator[None]:
    """Log this block as a run of the current job; without a current job, log nothing.

    The row is committed before the block begins, outside the block's transactions: a killed run is logged too.
    """
    started = timezone.now()
    job = current_job()
    if job is None:
        # A test or a shell called the task as a plain function.
        yield
        return
    run = TaskRun.objects.create(
        job_id=job.id,
        task=task,
        sale_id=sale_id,
        subject=subject,
        attempt=job.attempt,
        recovered=job.recovered,
        due=job.due,
        started=started,
        process=os.getpid(),
    )
    try:
        yield
    except RetryLater:
        run.outcome = RunOutcome.LATER
        raise
    except Exception as error:
        run.outcome, run.error = RunOutcome.FAILED, f"{type(error).__name__}: {error}"[:200]
        raise
    else:
        run.outcome = RunOutcome.DONE
    finally:
        run.ended = timezone.now()
        run.save(update_fields=["ended", "outcome", "error"])
