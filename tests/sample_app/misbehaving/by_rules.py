"""Tasks with options of retries that the older package in tests/upgrade/ does not know. Known by TASK_MODULES."""

from django_delayq import RetryPolicy, current_job, delayed_task
from tests.sample_app.tasks import note_run


@delayed_task(retry=RetryPolicy(dead_on=LookupError, delays=[3_600]), retry_delay=lambda attempt, error: 0.01)
def fail_with_rules(how: str) -> None:
    """Raise what is not tried again, or fail the first attempt only."""
    if how == "dead":
        raise KeyError("as asked")
    if current_job().attempt == 1:
        raise ValueError("as asked")
    note_run(args=[how])
