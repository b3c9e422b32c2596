"""manage.py delayq_cancel: cancel the waiting jobs that match a filter."""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_delayq.management.operating import WRONG_OPTIONS, JobsCommand, add_all


class Command(JobsCommand):
    """Cancel jobs that wait."""

    help = "Cancels the scheduled and ready jobs that match the filters, or those named by their ids."
    states = ("scheduled", "ready")

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        super().add_arguments(parser)
        add_all(parser, "scheduled and ready jobs")
        text = "Only the jobs of this tenant in --queue; no other filter may be given."
        parser.add_argument("--tenant", metavar="NAME", help=text)

    def handle(self, *args: Any, **options: Any) -> None:
        """Cancel them and print how many."""
        if options["tenant"] is not None:
            self._cancel_tenant(options)
            return
        self.change(("cancel", "cancelled"), options, lambda found, progress: found.cancel(on_progress=progress))

    def _cancel_tenant(self, options: dict[str, Any]) -> None:
        others = [name for name in ("ids", "state", "task", "error", "due_before", "all") if options.get(name)]
        if options["queue"] is None or others:
            text = "--tenant needs --queue, and takes no other filter"
            raise CommandError(text, returncode=WRONG_OPTIONS)
        [tenant] = self.tenants({**options, "queues": [options["queue"]]})
        waiting, name = tenant.counts()["waiting"], f"of tenant {tenant.name} in {tenant.queue}"
        if options["dry_run"]:
            self.print_result(
                options, f"Would cancel {waiting:,} jobs {name}.", dry_run=True, matched=waiting, changed=0
            )
            return
        self.confirm(f"Cancel {waiting:,} jobs {name}?", options)
        with self.progress(waiting) as show:
            changed = tenant.cancel(on_progress=show)
        self.print_result(options, f"Cancelled {changed:,} jobs {name}.", matched=waiting, changed=changed)
