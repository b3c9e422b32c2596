"""manage.py delayq_resume: allow the claims of the jobs of a paused queue, tenant or task again."""

from typing import Any

from django.core.management.base import CommandParser

from django_delayq.management.operating import OperatingCommand, add_tenant
from django_delayq.management.paused_task import add_task, change_task, check_subject


class Command(OperatingCommand):
    """Resume queues, a tenant of them, or a task."""

    help = "Resumes paused queues, a paused tenant of them, or a paused task: workers claim their jobs again at once."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        parser.add_argument("queues", nargs="*", metavar="QUEUE", help="The queues.")
        add_tenant(parser)
        add_task(parser)
        super().add_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Resume them and print which were changed."""
        check_subject(options)
        if options["task"] is not None:
            change_task(self, ("resume", "resumed"), options, lambda limits, names: limits.resume_task(*names))
            return
        if options["tenant"] is not None:
            self.change_tenants(
                ("resume", "resumed"), options, lambda tenant: tenant.paused is not None, lambda tenant: tenant.resume()
            )
            return
        found = self.queues(options)
        names = ", ".join(each.name for each in found)
        if options["dry_run"]:
            paused = [each.name for each in found if each.paused is not None]
            text = f"Would resume {', '.join(paused) or 'none'}."
            self.print_result(options, text, dry_run=True, changed=0, queues=paused)
            return
        self.confirm(f"Resume {names}?", options)
        changed = [each.name for each in found if each.resume()]
        text = f"Resumed {', '.join(changed)}." if changed else f"{names}: not paused."
        self.print_result(options, text, changed=len(changed), queues=changed)
