"""What a command prints, as text or as JSON."""

import json
from io import StringIO
from typing import Any

from django.core.management import call_command


def run(*command: str) -> str:
    """Run a command and return what it prints."""
    out = StringIO()
    call_command(*command, stdout=out, stderr=StringIO())
    return out.getvalue()


def read(*command: str) -> Any:
    """Run a command with --json and return its object."""
    return json.loads(run(*command, "--json"))
