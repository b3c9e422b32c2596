"""Tasks whose runs are compared by their keys, tenants and limits; the ledger has a line at each begin and end."""

import time

from django_delayq import RetryPolicy, current_job, delayed_task
from tests.sample_app.tasks import note, note_run

LIMITS = {"account": {"max_running": 1}}


@delayed_task(retry=RetryPolicy(max_attempts=10, base=0.01, cap=0.05))
def take(value: str = "", seconds: float = 0.02) -> None:
    """Take a moment."""
    occurrence = current_job().occurrence
    note_run(value=value, occurrence=occurrence and occurrence.timestamp())
    # The run has a length, so that two runs under one key or limit would overlap.
    time.sleep(seconds)
    note("end", id=current_job().id)
