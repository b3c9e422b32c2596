"""Tasks of two releases: DELAYQ_TEST_RELEASE chooses which of them a process has. Known by TASK_MODULES."""

import os
from typing import Any

from django_delayq import RetryPolicy, delayed_task
from tests.sample_app.tasks import note_run

TWICE = RetryPolicy(max_attempts=2)

if os.environ.get("DELAYQ_TEST_RELEASE") == "older":

    @delayed_task
    def greet(name: str) -> None:
        """Take one argument."""
        note_run(args=[name])

else:

    @delayed_task
    def greet(name: str, title: str) -> None:
        """Take two arguments."""
        note_run(args=[name, title])

    @delayed_task
    def brand_new(*args: Any) -> None:
        """Exist in the newer release only."""
        note_run(args=args)
