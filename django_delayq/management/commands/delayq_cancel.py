"""manage.py delayq_cancel: cancel the waiting jobs that match a filter."""

from typing import Any

from django.core.management.base import CommandParser

from django_delayq.management.operating import JobsCommand, add_all


class Command(JobsCommand):
    """Cancel jobs that wait."""

    help = "Cancels the scheduled and ready jobs that match the filters, or those named by their ids."
    states = ("scheduled", "ready")

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        super().add_arguments(parser)
        add_all(parser, "scheduled and ready jobs")

    def handle(self, *args: Any, **options: Any) -> None:
        """Cancel them and print how many."""
        self.change(("cancel", "cancelled"), options, lambda found, progress: found.cancel(on_progress=progress))
