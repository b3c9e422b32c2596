"""manage.py delayq_acl: print the Redis ACL rules of the roles, ready to use."""

import re
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_delayq.management.starting import add_backend, read_settings
from django_delayq.store.maintenance.acl_roles import ROLES

#: Redis refuses a line in which this still stands; a word behind `>` it would take for the password itself.
_PASSWORD = "#<sha256>"
_USER = re.compile(r"[A-Za-z0-9_.@-]{1,100}")


class Command(BaseCommand):
    """Print one ACL SETUSER line a role."""

    help = "Prints a Redis ACL rule for each role: what its commands need under the PREFIX in force, and nothing more."

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the options."""
        add_backend(parser)
        names = ", ".join(ROLES)
        parser.add_argument("role", nargs="?", metavar="ROLE", help=f"One of: {names}. Default: all.")
        parser.add_argument("--user", metavar="NAME", help="Name of the role's user. Default: delayq-ROLE.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print. Connects to nothing and takes no password."""
        role, user = options["role"], options["user"]
        if role is not None and role not in ROLES:
            raise CommandError(f"There is no role {role!r:.80}; choose one of {', '.join(ROLES)}, or none for all.")
        if user is not None and role is None:
            raise CommandError("--user needs a ROLE: users of two roles cannot share a name.")
        if user is not None and (not _USER.fullmatch(user) or user == "default"):
            raise CommandError(
                f"--user must be 1 to 100 letters, digits or _ . @ - and not 'default' (whom everybody else may "
                f"be using), got {user!r:.120}."
            )
        prefix = read_settings(options["backend"]).prefix
        if set(prefix) & set("\"'"):
            raise CommandError("DELAYQ['PREFIX'] has a quotation mark, which ACL lines cannot carry; change it.")
        for name in (role,) if role else ROLES:
            rule = ROLES[name].rule(prefix)
            # `reset` first: what an earlier release was allowed is taken back.
            self.stdout.write(f"ACL SETUSER {user or f'delayq-{name}'} reset on {_PASSWORD} {rule}")
        if options["verbosity"]:
            self.stderr.write(
                "Put the SHA-256 of each user's password, 64 hexadecimal digits, in place of <sha256>. "
                "ACL SAVE makes the users last where Redis has an aclfile."
            )
