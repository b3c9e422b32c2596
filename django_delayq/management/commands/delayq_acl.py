"""manage.py delayq_acl: print the Redis ACL rule of each role, ready to use."""

import re
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_delayq.management.starting import add_backend, read_settings
from django_delayq.store.maintenance.acl_roles import ROLES

#: Stands for the hash of the password in a printed rule. Redis refuses it; after `>` any text would be the password.
_PASSWORD = "#<sha256>"
_USER = re.compile(r"[A-Za-z0-9_.@-]{1,100}")


class Command(BaseCommand):
    """Print one ACL SETUSER line for each role."""

    help = "Prints a Redis ACL rule for each role: the commands and keys it needs under PREFIX, and nothing more."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        add_backend(parser)
        names = ", ".join(ROLES)
        parser.add_argument("role", nargs="?", metavar="ROLE", help=f"One of {names}. Default: all.")
        parser.add_argument("--user", metavar="NAME", help="Name of the user. Default: delayq-ROLE.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the lines. Connects to nothing and takes no password."""
        role, user = options["role"], options["user"]
        if role is not None and role not in ROLES:
            raise CommandError(f"There is no role {role!r:.80}; choose one of {', '.join(ROLES)}, or none for all.")
        if user is not None and role is None:
            raise CommandError("--user needs a ROLE: two roles cannot share one user.")
        if user is not None and (not _USER.fullmatch(user) or user == "default"):
            raise CommandError(
                f"--user must be 1 to 100 letters, digits or _ . @ - and not 'default', which other clients may use; "
                f"got {user!r:.120}."
            )
        prefix = read_settings(options["backend"]).prefix
        if set(prefix) & set("\"'"):
            raise CommandError("DELAYQ['PREFIX'] has a quotation mark, which an ACL line cannot contain; change it.")
        for name in (role,) if role else ROLES:
            rule = ROLES[name].rule(prefix)
            # `reset` first: it revokes what the rule of an earlier release allowed.
            self.stdout.write(f"ACL SETUSER {user or f'delayq-{name}'} reset on {_PASSWORD} {rule}")
        if options["verbosity"]:
            self.stderr.write(
                "Put the SHA-256 of each user's password, 64 hexadecimal digits, in place of <sha256>. "
                "If Redis has an aclfile, ACL SAVE keeps the users over a restart."
            )
