"""The other system that a forwarder hands jobs to."""

from typing import Any

from tests.sample_app.tasks import note

NO_FUNCTION = 3


def accept(job: dict[str, Any]) -> None:
    """Take a job, or refuse it."""
    note("refused" if job["args"] == ["refuse"] else "accepted", **job)
    if job["args"] == ["refuse"]:
        raise ConnectionError("the other system is away")
