"""Command: `delayq_shards` as tests run it, without waiting for processes or schedules."""

import json
from io import StringIO
from typing import Any

from django.core.management import call_command


def shards(*args: str) -> dict[str, Any]:
    """Run the command; return what it prints as JSON."""
    out = StringIO()
    call_command("delayq_shards", *args, "--json", "--yes", "--wait", "0", stdout=out)
    found: dict[str, Any] = json.loads(out.getvalue())
    return found
