"""manage.py delayq_resume: allow the claims of a paused queue's or tenant's jobs again."""

from typing import Any

from django.core.management.base import CommandParser

from django_delayq.management.operating import OperatingCommand, add_tenant


class Command(OperatingCommand):
    """Resume queues, or a tenant of them."""

    help = "Resumes paused queues, or a paused tenant of them: workers claim their jobs again at once."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        parser.add_argument("queues", nargs="+", metavar="QUEUE", help="The queues.")
        add_tenant(parser)
        super().add_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Resume them and print which were changed."""
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
