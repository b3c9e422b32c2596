"""manage.py delayq_pause: stop the claims of the jobs of a queue, tenant or task, until it is resumed, or a time."""

import getpass
from datetime import datetime, timedelta
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_delayq.control.queues import pause_end_us
from django_delayq.management.operating import (
    WRONG_OPTIONS,
    OperatingCommand,
    add_tenant,
    iso,
    time_or_span,
)
from django_delayq.management.paused_task import add_task, change_task, check_subject


class Command(OperatingCommand):
    """Pause queues, a tenant of them, or a task."""

    help = "Pauses queues, one tenant of them, or a task: no worker claims their jobs; running jobs continue."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        parser.add_argument("queues", nargs="*", metavar="QUEUE", help="The queues.")
        text = "When the pause ends: 10m from now, or a time such as 2027-01-31T08:00. Default: when it is resumed."
        parser.add_argument("--until", metavar="TIME", type=time_or_span, help=text)
        add_tenant(parser)
        add_task(parser)
        super().add_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Pause them and print which were changed."""
        check_subject(options)
        if options["task"] is not None:
            self._refuse_until(options, "a task")
            change_task(
                self, ("pause", "paused"), options, lambda limits, names: limits.pause_task(*names, by=_person())
            )
            return
        if options["tenant"] is not None:
            self._pause_tenant(options)
            return
        found = self.queues(options)
        names, until = ", ".join(each.name for each in found), options["until"]
        # Before the question: nobody should confirm what is then refused.
        end = None if until is None else iso(pause_end_us(until, self.open(options)))
        if options["dry_run"]:
            text, which = f"Would pause {names}{_until(until)}.", [each.name for each in found]
            self.print_result(options, text, dry_run=True, changed=0, queues=which, until=end)
            return
        self.confirm(f"Pause {names}{_until(until)}?", options)
        changed = [each.name for each in found if each.pause(until=until, by=_person())]
        text = f"Paused {', '.join(changed)}{_until(until)}." if changed else f"{names}: paused already."
        self.print_result(options, text, changed=len(changed), queues=changed)

    def _pause_tenant(self, options: dict[str, Any]) -> None:
        self._refuse_until(options, "a tenant")
        self.change_tenants(
            ("pause", "paused"),
            options,
            lambda tenant: tenant.paused is None,
            lambda tenant: tenant.pause(by=_person()),
        )

    def _refuse_until(self, options: dict[str, Any], what: str) -> None:
        if options["until"] is not None:
            raise CommandError(f"--until is for queues; {what} is paused until it is resumed", returncode=WRONG_OPTIONS)


def _until(until: datetime | timedelta | None) -> str:
    if until is None:
        return ""
    return f" until {until.isoformat()}" if isinstance(until, datetime) else f" for {until}"


def _person() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        # In a container the user may have no name.
        return "a command"
