"""The other system to which a forwarder passes jobs."""

from typing import Any

from tests.sample_app.tasks import note

NO_FUNCTION = 3


def accept(job: dict[str, Any]) -> None:
    """Accept a job, or refuse it."""
    note("refused" if job["args"] == ["refuse"] else "accepted", **job)
    if job["args"] == ["refuse"]:
        raise ConnectionError("the other system is away")
