"""Tasks: this project's side, one task for each rule."""

from benchmarks.debounce import plan
from django_delayq import Debounce, current_job, delayed_task
from django_delayq.clock import moment_us


@delayed_task(key=lambda key: key, unique=Debounce(plan.LAST.wait, plan.LAST.max_wait))
def after_last_call(key: str) -> None:
    """Record the run."""
    _record(key)


@delayed_task(key=lambda key: key, unique=Debounce(plan.FIRST.wait, plan.FIRST.max_wait))
def after_first_call(key: str) -> None:
    """Record the run."""
    _record(key)


def call(key: str, rule: plan.Rule) -> None:
    """Call a key."""
    (after_last_call if rule == plan.LAST else after_first_call).enqueue(key)


def _record(key: str) -> None:
    job = current_job()
    assert job is not None
    plan.record(key, moment_us(job.due))
