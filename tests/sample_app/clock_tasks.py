"""Tasks for processes whose clock is wrong. A process knows them by TASK_MODULES."""

import time

from django_delayq import delayed_task
from tests.sample_app.tasks import note_run


@delayed_task
def tell(seconds: float = 0) -> None:
    """Write down what time it is by this process's clock, and what time it is."""
    note_run(believed=time.time(), truly=getattr(time, "unshifted", time.time)())
    # Keeps the job under way while the test pushes clocks or ends processes.
    time.sleep(seconds)
