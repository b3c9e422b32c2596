"""manage.py delayq_tenants: list the tenants of a queue that have waiting jobs or are paused."""

import json
from heapq import nlargest
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_delayq.control.tenants import Tenant, TenantCounts
from django_delayq.display.text import printable
from django_delayq.management.operating import WRONG_OPTIONS, OperatingCommand, to_seconds


class Command(OperatingCommand):
    """Print the tenants, one a line."""

    help = "Lists the tenants of a queue that have waiting jobs or are paused, those with the most jobs first."
    changes = False

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        parser.add_argument("queue", metavar="QUEUE", help="The queue.")
        parser.add_argument("--limit", type=int, default=100, help="Most tenants to list; 0 for all. Default: 100.")
        super().add_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the tenants."""
        if options["limit"] < 0:
            raise CommandError(f"--limit must be 0 (all) or more, got {options['limit']}", returncode=WRONG_OPTIONS)
        [queue] = self.queues({**options, "queues": [options["queue"]]})
        found = list(queue.tenants())
        most = nlargest(options["limit"] or len(found), found, key=lambda item: item[1]["waiting"])
        if options["json"]:
            self.stdout.write(json.dumps([_facts(tenant, counts) for tenant, counts in most]))
            return
        for tenant, counts in most:
            since = f"  next one due since {to_seconds(counts['oldest'].isoformat())}" if counts["oldest"] else ""
            paused = "  paused" if counts["paused"] else ""
            self.stdout.write(printable(f"{counts['waiting']:>10,}  {tenant.name}{since}{paused}"))
        if len(most) < len(found):
            self.stderr.write(f"The first {len(most):,} of {len(found):,}; --limit 0 lists all.")


def _facts(tenant: Tenant, counts: TenantCounts) -> dict[str, Any]:
    oldest = counts["oldest"]
    return {**counts, "tenant": tenant.name, "oldest": None if oldest is None else oldest.isoformat()}
