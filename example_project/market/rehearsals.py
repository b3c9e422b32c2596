"""Tasks that go wrong on purpose. No page uses them: the demo does, to show what happens then."""

import time

from django.conf import settings

from django_delayq import RetryPolicy, current_job, delayed_task
from market.ledger import recorded

PATIENCE = RetryPolicy(max_attempts=3, base=settings.MARKET_RETRY_BASE, cap=settings.MARKET_RETRY_BASE * 2)


class Mishap(Exception):
    """What goes wrong in a rehearsal."""


@delayed_task(queue="rehearsals")
def greet(name: str) -> None:
    """Do nothing but leave a trace: proof that a dispatcher and a worker are there."""
    with recorded("greet", subject=name):
        pass


@delayed_task(queue="rehearsals", retry=PATIENCE)
def stumble(name: str) -> None:
    """Fail at the first attempt, succeed at the second."""
    with recorded("stumble", subject=name):
        if current_job().attempt == 1:
            raise Mishap("the courier's horse lost a shoe")


@delayed_task(queue="rehearsals", retry=PATIENCE)
def despair(name: str) -> None:
    """Fail at every attempt, until it is a dead letter."""
    with recorded("despair", subject=name):
        raise Mishap("nobody lives at this address")


@delayed_task(queue="rehearsals", retry=PATIENCE)
def ponder(name: str, seconds: float) -> None:
    """Work for a while: long enough for somebody to pull the plug."""
    with recorded("ponder", subject=name):
        time.sleep(seconds)
