"""Tasks for processes whose clock is wrong."""

import time

from django_delayq import delayed_task
from tests.sample_app.tasks import note_run


@delayed_task
def report_clock(seconds: float = 0) -> None:
    """Record the time by this process's clock, and the correct time."""
    note_run(believed=time.time(), truly=getattr(time, "unshifted", time.time)())
    # Keeps the job under way while the test pushes clocks or ends processes.
    time.sleep(seconds)
