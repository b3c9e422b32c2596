"""Tasks of two releases: DELAYQ_TEST_RELEASE chooses which of them a process has. Known by TASK_MODULES.

Each may run once only: a job whose attempts count for anything but its own error is dead.
"""

import os
import time
from typing import Any

from django_delayq import RetryPolicy, current_job, delayed_task
from tests.sample_app.tasks import note_run

ONCE = RetryPolicy(max_attempts=1)
RELEASE = os.environ.get("DELAYQ_TEST_RELEASE", "newer")


@delayed_task(retry=ONCE)
def linger(seconds: float) -> None:
    """Exist in both releases, and run longer than a stopped worker waits."""
    note_run(release=RELEASE)
    time.sleep(seconds)


@delayed_task(retry=ONCE)
def hold(seconds: float) -> None:
    """Exist in both releases, and run until the worker is stopped; the next run ends at once."""
    note_run(release=RELEASE)
    if not current_job().recovered:
        # The end of the worker's process ends this. In a worker that is never stopped the job ends after all.
        time.sleep(seconds)


if RELEASE == "older":

    @delayed_task(retry=ONCE)
    def greet(name: str) -> None:
        """Take one argument."""
        note_run(args=[name], release=RELEASE)

    @delayed_task(retry=ONCE)
    def retired(*args: Any) -> None:
        """Exist in the older release only."""
        note_run(args=args, release=RELEASE)

else:

    @delayed_task(retry=ONCE)
    def greet(name: str, title: str) -> None:
        """Take two arguments."""
        note_run(args=[name, title], release=RELEASE)

    @delayed_task(retry=ONCE)
    def brand_new(*args: Any) -> None:
        """Exist in the newer release only."""
        note_run(args=args, release=RELEASE)
