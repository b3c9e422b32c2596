"""Tasks that fail on purpose. Only the demo uses them, to show retries, dead letters and crash recovery."""

import time

from django.conf import settings

from django_delayq import RetryPolicy, current_job, delayed_task
from market.run_log import log_run

RETRY = RetryPolicy(max_attempts=3, base=settings.MARKET_RETRY_BASE, cap=settings.MARKET_RETRY_BASE * 2)


class Mishap(Exception):
    """The error of a task that fails on purpose."""


@delayed_task(queue="failing")
def greet(name: str) -> None:
    """Log a run and do nothing else: proof that a dispatcher and a worker are running."""
    with log_run("greet", subject=name):
        pass


@delayed_task(queue="failing", retry=RETRY)
def fail_once(name: str) -> None:
    """Fail at the first attempt and succeed at the second."""
    with log_run("fail_once", subject=name):
        if current_job().attempt == 1:
            raise Mishap("the courier's horse lost a shoe")


@delayed_task(queue="failing", retry=RETRY)
def fail_always(name: str) -> None:
    """Fail at every attempt, until the job is a dead letter."""
    with log_run("fail_always", subject=name):
        raise Mishap("nobody lives at this address")


@delayed_task(queue="failing", retry=RETRY)
def run_long(name: str, seconds: float) -> None:
    """Run for some seconds: long enough to kill the worker meanwhile."""
    with log_run("run_long", subject=name):
        time.sleep(seconds)
