"""LedgerEntry: one row for every run of a task, written by its worker; proof that nothing ran early."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from django.db import models
from django.utils import timezone

from django_delayq import RetryLater, current_job
from django_delayq.exceptions import DelayQError


class Ending(models.TextChoices):
    NONE = "", "Not ended"
    DONE = "done", "Done"
    LATER = "later", "Put off"
    FAILED = "failed", "Failed"


class LedgerEntry(models.Model):
    """What the worker saw: which job, when it was due, began, ended, and how. A killed run has no end."""

    job_id = models.CharField(max_length=64, db_index=True)
    task = models.CharField(max_length=60)
    #: No constraint in the database: what ran for a sale stays evidence when the sale is gone.
    sale = models.ForeignKey("market.Sale", models.DO_NOTHING, null=True, db_constraint=False, related_name="+")
    subject = models.CharField(max_length=60, blank=True)
    attempt = models.PositiveSmallIntegerField()
    recovered = models.BooleanField(default=False, help_text="The attempt before ended in a crash.")
    due = models.DateTimeField(help_text="To the millisecond.")
    started = models.DateTimeField()
    ended = models.DateTimeField(null=True)
    ending = models.CharField(max_length=6, choices=Ending.choices, default=Ending.NONE, blank=True)
    error = models.CharField(max_length=200, blank=True)
    process = models.PositiveIntegerField()

    class Meta:
        ordering = ("-pk",)
        verbose_name_plural = "ledger entries"

    def __str__(self) -> str:
        return f"{self.task} {self.job_id}, attempt {self.attempt}"

    @property
    def lateness(self) -> timedelta:
        """How long after its time the run began; negative would be early, and never is."""
        return self.started - self.due


@contextmanager
def recorded(task: str, *, sale_id: int | None = None, subject: str = "") -> Iterator[None]:
    """Write the run around this block into the ledger; outside a worker, where no job runs, write nothing.

    The row is committed before the work begins, in no transaction of the work's own: a run that fails or is
    killed is in the ledger too.
    """
    started = timezone.now()
    try:
        job = current_job()
    except DelayQError:
        # Called as a plain function, as a test or a shell may.
        job = None
    if job is None:
        yield
        return
    entry = LedgerEntry.objects.create(
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
        entry.ending = Ending.LATER
        raise
    except Exception as error:
        entry.ending, entry.error = Ending.FAILED, f"{type(error).__name__}: {error}"[:200]
        raise
    else:
        entry.ending = Ending.DONE
    finally:
        entry.ended = timezone.now()
        entry.save(update_fields=["ended", "ending", "error"])
