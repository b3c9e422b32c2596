"""manage.py delayq_requeue: retry the failed jobs that match a filter, at once or spread over time."""

from argparse import ArgumentTypeError
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandParser

from django_delayq.management.operating import JobsCommand, add_all, span


class Command(JobsCommand):
    """Retry failed jobs."""

    help = "Retries the failed jobs that match the filters, or those named by their ids."
    states = ("failed",)

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        super().add_arguments(parser)
        add_all(parser, "failed jobs")
        text = "Spread them evenly over this time, such as 10m; the same command continues an interrupted spread."
        parser.add_argument("--spread", metavar="SPAN", type=_spread, help=text)

    def handle(self, *args: Any, **options: Any) -> None:
        """Retry them and print how many."""
        if options["spread"] is not None:
            # Before the question: nobody should confirm what is then refused.
            self.open(options).config.tasks.check_spread(options["spread"])
        self.change(
            ("retry", "retried"),
            options,
            lambda found, progress: found.requeue(spread=options["spread"], on_progress=progress),
        )


def _spread(text: str) -> timedelta:
    """Read the time to spread over. Raises ArgumentTypeError."""
    found = span(text)
    if not found:
        raise ArgumentTypeError(f"{text!r:.80} is no time to spread over; leave it out to retry all at once")
    return found
