"""Tasks that fork. A process knows them by TASK_MODULES."""

import os
import signal
import time

from django_delayq import current_job, delayed_task
from tests.sample_app.tasks import note, note_run


@delayed_task
def slow() -> None:
    """Hold a claim for longer than a third of a lease of three seconds."""
    note_run()
    # The time of a claim is what the test is about.
    time.sleep(1.8)


@delayed_task
def from_child() -> None:
    """Record that a job of a forked child ran."""
    note_run(how="from a child")


@delayed_task
def fork(how: str) -> None:
    """Fork; the child ends as `how` names, and the parent waits for it and continues beyond its first lease."""
    note_run()
    pid = os.fork()
    if pid == 0:
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "enqueue":
            from_child.enqueue()
        os._exit(0)
    os.waitpid(pid, 0)
    # One and a half leases: only heartbeats after the fork keep the claim.
    time.sleep(4.5)
    note("end", id=current_job().id)
