"""Forwarding: hand each claim to another system, which runs it; it is acknowledged once that system has accepted it.

A crash between the two hands the job over once more: the other system knows it by its id.
"""

from collections.abc import Callable
from typing import Any

from django_delayq.job.job import Claim
from django_delayq.job.outcome import UNSTARTED, Outcome
from django_delayq.worker.execution import forward


class ForwardingRunner:
    """Give jobs to a function instead of running their tasks."""

    def __init__(self, accept: Callable[[dict[str, Any]], object]) -> None:
        self._accept = accept

    def prepare(self) -> None:
        """There is nothing to prepare."""

    def run(self, claim: Claim, begin: Callable[[], bool]) -> Outcome:
        """Hand a job over."""
        return forward(claim, self._accept) if begin() else UNSTARTED

    def close(self) -> None:
        """There is nothing to end."""
